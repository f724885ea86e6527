"""What tests of the runtime share."""

from __future__ import annotations

import pytest

from tests.arrow_fronts import FrontReader, compiled


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> FrontReader:
    """The front in C."""
    return FrontReader(compiled(tmp_path_factory.mktemp("front"), "-Werror"))
