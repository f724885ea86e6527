"""``hbtvm completion``: the shells themselves complete with the scripts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hbtvm.cli.main import main

CASES = {
    "hbtvm pre": {"predict"},
    "hbtvm tune model.pkl --time": {"--time-budget"},
    "hbtvm tune --rpc-": {"--rpc-key", "--rpc-tracker"},
    "hbtvm predict m.tar rows.csv --output s": {"score"},
    "hbtvm explain m.tar rows.csv --sign n": {"negative"},
    "hbtvm log me": {"merge"},
    "hbtvm log best --strategy bit": {"bitvector"},
    "hbtvm log best log.jsonl --js": {"--json"},
    "hbtvm help ins": {"inspect"},
    "hbtvm completion z": {"zsh"},
    "hbtvm tune unli": {"unlike.pkl"},
    "hbtvm tune --log unli": {"unlike.pkl"},
}
"""Lines that end where TAB is pressed, and the words to offer."""

_BASH = """
source ./script
for line in "$@"; do
    read -ra COMP_WORDS <<< "$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _hbtvm
    if ((! ${#COMPREPLY[@]})); then COMPREPLY=($(compgen -o default -- "${COMP_WORDS[COMP_CWORD]}")); fi
    echo "${COMPREPLY[*]}"
done
complete -p hbtvm
"""

_FISH = "source ./script; for line in $argv; \
complete -C $line | string split -f1 \\t | string join ' '; end; true"


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    (folder / "unlike.pkl").touch()
    path = folder / "script"
    path.write_text(capsys.readouterr().out)
    return path


def run(folder: Path, *command: str) -> list[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script("bash", tmp_path, capsys)
    *offered, registered = run(tmp_path, "bash", "--norc", "-c", _BASH, "bash", *CASES)
    assert dict(zip(CASES, map(set, map(str.split, offered)), strict=True)) == CASES
    assert registered == "complete -o default -F _hbtvm hbtvm"


def test_fish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("this machine lacks fish")
    script("fish", tmp_path, capsys)
    offered = run(tmp_path, "fish", "--no-config", "-c", _FISH, *CASES)
    assert dict(zip(CASES, map(set, map(str.split, offered)), strict=True)) == CASES


def test_zsh_reads_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("this machine lacks zsh")
    script("zsh", tmp_path, capsys)
    [line] = run(tmp_path, "zsh", "-fc", "compdef() { echo compdef $* }; source ./script")
    assert line == "compdef _hbtvm hbtvm"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_hold_all_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.cli.test_main import PARSERS

    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for parser in PARSERS.values():
        for option in parser._option_string_actions:
            assert (option if shell != "fish" else f"-l {option[2:]}") in text or not option.startswith("--")
