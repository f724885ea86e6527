"""Libraries for another architecture, run by an emulator."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import hbtvm
import hbtvm.recursive as rec
from hbtvm.compiler.building.compilers import c_compiler
from hbtvm.errors import BuildError
from hbtvm.recursive import reference
from tests import aarch64
from tests.exported import C_OPTIONS

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "arm.h"

int main(int count, char **given) {
  int64_t n = count / ARM_COLUMNS;
  double *rows = malloc(sizeof *rows * (size_t)count), shares[64 * ARM_PREDICT_PROBA_COLUMNS];
  for (int i = 1; i < count; ++i) rows[i - 1] = strtod(given[i], NULL);
  arm_model *model = arm_open(2);
  if (!rows || !model || n > 64) return 2;
  int code = arm_predict_proba_f64(model, rows, n, shares, 0, NULL);
  for (int64_t i = 0; i < n * ARM_PREDICT_PROBA_COLUMNS; ++i) printf("%a\n", shares[i]);
  arm_close(model);
  free(rows);
  return code;
}
"""


def _compiler() -> str:
    try:
        return c_compiler(aarch64.ARM)
    except BuildError as error:
        pytest.skip(str(error))


def test_a_library_for_aarch64(tmp_path: Path) -> None:
    """Sums of trees' values are the same there, since nothing is fused."""
    emulator, compiler = aarch64.emulator(), _compiler()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)).round(2)
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, X[:, 0] > 0.3)
    compiled = hbtvm.compile(forest, target=dict(aarch64.ARM), batch_sizes=(16,), threads=1)
    hbtvm.export(compiled, tmp_path / "lib", "arm")
    (tmp_path / "program.c").write_text(PROGRAM)
    command = [
        *(compiler, "-std=c11", *C_OPTIONS, "program.c", f"-I{tmp_path}/lib", "lib/libarm.a"),
        *("-lm", "-pthread", "-o", "program"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = X[:20]
    given = [float(one).hex() for one in rows.reshape(-1)]
    done = subprocess.run([*emulator, "./program", *given], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.array([float.fromhex(one) for one in done.stdout.split()]).reshape(20, 2)
    np.testing.assert_allclose(found, forest.predict_proba(rows), rtol=1e-6)


def test_a_recursive_model_for_aarch64(tmp_path: Path) -> None:
    """The example, whose structure is a chain of three nodes."""
    emulator, compiler = aarch64.emulator(), _compiler()

    @rec.cell(children=2, state={"h": 20}, inputs={"word": rec.embedding("words")})
    def cell(node, w):  # type: ignore[no-untyped-def]
        return {"h": rec.tanh(w.U @ rec.total(node.children.h) + node.word)}

    rng = np.random.default_rng(0)
    weights = {"words": rng.normal(size=(4, 20)), "U": rng.normal(size=(20, 20)) / 4}
    model = rec.Model(cell, weights, rec.roots("h"))
    compiled = hbtvm.compile(model, target=dict(aarch64.ARM), batch_sizes=(1,), threads=1)
    hbtvm.export(compiled, tmp_path, "arm", force=True)
    command = [compiler, "-std=c11", *C_OPTIONS, "example.c", "libarm.a", "-lm", "-pthread", "-o", "example"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*emulator, "./example"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [float(one) for one in done.stdout.split()]
    chain = rec.parent_arrays([[1, 2, -1]], {"word": [0, 0, 0]})
    np.testing.assert_allclose(found, reference.scores(model, chain)[0], atol=1e-5)
