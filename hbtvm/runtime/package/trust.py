"""Decide by hash and signature whether a package's bytes may be loaded.

Signatures are OpenSSH's (``ssh-keygen -Y sign -n hbtvm -f KEY model.tar``), and ``ssh-keygen`` verifies them;
the only cryptography in hbtvm is SHA-256. The checked bytes are the loaded bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hbtvm.errors import InputError, PackageError

NAMESPACE = "hbtvm"  # namespace of signatures; signatures with the same key for other purposes do not count


@dataclass(frozen=True)
class Trust:
    """Requirements for loading a package.

    Raises `InputError` if `sha256` is not a hash, or there is a `signature` without `allowed_signers`.
    """

    sha256: str | None = None  # the hash of the whole file, 64 hexadecimal digits; None for any
    # A file of keys in the format of ``ssh-keygen`` (ALLOWED SIGNERS in its manual), one of which must have
    # signed the package; None if no signature is required
    allowed_signers: str | os.PathLike[str] | None = None
    # The file of the signature; by default the package's name with ``.sig``
    signature: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", str(self.sha256)):
            raise InputError(f"sha256: expected 64 hexadecimal digits, got {str(self.sha256)!r:.80}.")
        if self.signature is not None and self.allowed_signers is None:
            raise InputError("signature: this needs allowed_signers, the file of keys that may have signed.")

    def check(self, data: bytes, name: str, path: str | os.PathLike[str] | None = None) -> None:
        """Check a package's bytes.

        `data`: the whole file.
        `name`: its name in errors.
        `path`: its path; None if it was not read from a file.
        Raises `PackageError` if its hash differs, or no signature by an allowed signer can be verified.
        """
        if self.sha256 is not None:
            digest = hashlib.sha256(data).hexdigest()
            if digest != self.sha256.lower():
                raise PackageError(f"{name} has the SHA-256 {digest}, expected {self.sha256.lower()}.")
        if self.allowed_signers is not None:
            if self.signature is None and path is None:
                raise InputError("allowed_signers: a package that is not a file needs the signature's file.")
            signature = f"{path}.sig" if self.signature is None else self.signature
            self._check_signature(data, name, Path(self.allowed_signers), Path(signature))

    def _check_signature(self, data: bytes, name: str, signers: Path, signature: Path) -> None:
        if not signature.is_file():
            raise PackageError(f"{name} has to be signed, and there is no signature {signature}.")
        if not signers.is_file():
            raise PackageError(f"there is no file {signers} of allowed signers.")
        program = shutil.which("ssh-keygen")
        if program is None:
            raise PackageError(
                "verifying a signature needs ssh-keygen, which is not installed; on Debian: apt-get install "
                "openssh-client."
            )
        files = ["-s", str(signature), "-f", str(signers)]
        principals = _run([program, "-Y", "find-principals", *files])
        reason = _reason(principals)
        for principal in principals.stdout.decode("utf-8", "replace").splitlines():
            verified = _run([program, "-Y", "verify", *files, "-n", NAMESPACE, "-I", principal], data)
            if principals.returncode == 0 and verified.returncode == 0:
                return
            reason = _reason(verified)
        raise PackageError(f"{name} is not signed by a key of {signers} for {NAMESPACE} ({reason}).")


ANY = Trust()  # any package may be loaded


def _run(command: list[str], data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=data, capture_output=True, env={**os.environ, "LC_ALL": "C"})


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
    return (
        f"ssh-keygen: {lines[-1].strip().rstrip('.')}"
        if lines
        else f"ssh-keygen ended with {done.returncode}"
    )
