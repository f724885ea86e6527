"""Packages that are pinned by a hash, or have to be signed."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hbtvm.cli.main import main
from hbtvm.errors import HbtvmError, InputError, PackageError
from hbtvm.runtime import model as model_module
from hbtvm.runtime.package.file import content, read
from hbtvm.runtime.package.trust import Trust
from hbtvm.serving.metrics import Metrics
from hbtvm.serving.repository import Repository

SOURCE = Path(__file__).parents[1] / "data" / "package_v1_clusters.tar"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return Path(shutil.copy(SOURCE, tmp_path / "model.tar"))


@pytest.fixture
def signers(tmp_path: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    for name in ("ours", "theirs"):
        keygen("-t", "ed25519", "-N", "", "-f", str(tmp_path / name))
    path = tmp_path / "signers"
    path.write_text("me@example.org " + (tmp_path / "ours.pub").read_text())
    return path


def keygen(*arguments: str) -> None:
    subprocess.run(["ssh-keygen", "-q", *arguments], check=True, capture_output=True, timeout=60)


def sign(package: Path, key: str = "ours", namespace: str = "hbtvm") -> None:
    Path(f"{package}.sig").unlink(missing_ok=True)
    keygen("-Y", "sign", "-n", namespace, "-f", str(package.parent / key), str(package))


def refused(*given: Any, source: Any) -> str:
    with pytest.raises(HbtvmError) as caught:
        read(source, Trust(*given))
    return str(caught.value)


def test_hashes(package: Path) -> None:
    data = package.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    for source in (package, str(package), data, io.BytesIO(data)):
        assert read(source, Trust(digest.upper())).model == "KMeans"
    other = hashlib.sha256(data + b"x").hexdigest()
    text = refused(other, source=package)
    assert digest in text and other in text and text.startswith(str(package))
    for wrong in ("", "00", digest[:-1] + "g", digest + "\n", 3):
        with pytest.raises(InputError, match="expected 64 hexadecimal digits"):
            Trust(wrong)  # type: ignore[arg-type]


def test_signatures(package: Path, signers: Path, tmp_path: Path) -> None:
    assert "has to be signed" in refused(None, signers, source=package)
    sign(package)
    assert read(package, Trust(None, signers)).model == "KMeans"
    moved = Path(shutil.move(f"{package}.sig", tmp_path / "moved"))
    assert read(package.read_bytes(), Trust(None, signers, moved)).model == "KMeans"
    assert "needs the signature's file" in refused(None, signers, source=package.read_bytes())
    assert "no file" in refused(None, tmp_path / "none", moved, source=package)
    sign(package, "theirs")
    assert "is not signed by a key of" in refused(None, signers, source=package)
    sign(package, namespace="file")
    assert "namespace does not match" in refused(None, signers, source=package)
    sign(package)
    package.write_bytes(package.read_bytes() + bytes(512))
    assert "incorrect signature" in refused(None, signers, source=package)
    for damaged in (b"", b"\0" * 100, b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"):
        Path(f"{package}.sig").write_bytes(damaged)
        assert "is not signed" in refused(None, signers, source=package)
    with pytest.raises(InputError, match="needs allowed_signers"):
        Trust(signature=moved)


def test_without_ssh_keygen(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for path in (signature := Path(f"{package}.sig"), tmp_path / "signers"):
        path.write_text("")
    assert "apt-get install openssh-client" in refused(None, tmp_path / "signers", signature, source=package)


def test_what_was_checked_is_loaded(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read once: another package in its place does not count."""
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    check = Trust.check

    def replaced(self: Trust, *given: Any) -> None:
        check(self, *given)
        package.write_bytes(b"another")

    monkeypatch.setattr(Trust, "check", replaced)
    assert read(package, Trust(digest)).model == "KMeans"
    package.write_bytes(SOURCE.read_bytes())
    assert content(package, Trust(digest))[0] == SOURCE.read_bytes()


def test_a_service_takes_no_other_file(package: Path) -> None:
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    repository = Repository({"a": package}, Metrics(), trust={"a": Trust(digest)})
    repository.load("a")
    served = repository.served["a"]
    package.write_bytes(package.read_bytes() + bytes(512))
    with pytest.raises(PackageError, match="has the SHA-256"):
        repository.load("a")
    assert repository.served["a"] is served


@pytest.mark.parametrize(
    "command",
    [
        ["inspect", "model.tar"], ["predict", "model.tar", "rows.csv"],
        ["predict", "model.tar", "rows/", "-o", "out"], ["serve", "model.tar", "--port", "0"],
    ],
)  # fmt: skip
def test_commands(
    command: list[str], package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(package.parent)
    Path("rows.csv").write_text("1,2,3,4,5\n")
    Path("rows").mkdir()
    Path("rows/a.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n")
    for more, said in (
        (["--sha256", "0" * 64], "has the SHA-256"),
        (["--sha256", "00"], "expected 64 hexadecimal digits"),
        (["--allowed-signers", "signers"], "has to be signed"),
    ):
        assert main([*command, *more]) != 0
        assert said in capsys.readouterr().err
    assert not Path("out").exists()


def test_inspect_loads_no_code(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *given: pytest.fail("code was loaded"))
    monkeypatch.setattr(model_module.Model, "warm_up", lambda *given: pytest.fail("a model was loaded"))
    for more in ([], ["--json"], ["--sha256", hashlib.sha256(package.read_bytes()).hexdigest()]):
        assert main(["inspect", str(package), *more]) == 0
        assert hashlib.sha256(package.read_bytes()).hexdigest() in capsys.readouterr().out
