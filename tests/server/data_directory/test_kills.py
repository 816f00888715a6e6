"""A process that writes is killed (SIGKILL) at a random point: what it acknowledged is read again."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from tests.support.data_directory import content
from tests.support.soak import cases, soak

pytestmark = pytest.mark.slow

WRITER = """
import os, sys
from fakebroker.server.data_directory.directory import DataDirectory
directory = DataDirectory.open(sys.argv[1], fsync=sys.argv[2], warn=lambda sentence: None)
number = 0
for kind, payload in directory.entries():
    number = int(payload[:10]) + 1
while True:
    for _ in range(number % 7 + 1):
        assert directory.reserve(10_000)
        directory.write(1, [b"%010d" % number, bytes(number * 37 % 5_000)])
        number += 1
    directory.flush()
    os.write(1, b"%010d" % number)
    if number % 500 < 7:
        checkpoint = directory.begin_checkpoint()
        checkpoint.write(2, [b"%010d" % (number - 1)])
        checkpoint.commit()
"""


@soak
@pytest.mark.parametrize("fsync", ["always", "interval"])
def test_a_killed_writer_loses_nothing_that_it_acknowledged(
    tmp_path: Path, fsync: Literal["always", "interval"]
) -> None:
    acknowledged = 0
    for seed in cases(2, soak=50):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), fsync], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        pipe = writer.stdout.fileno()
        last = os.read(pipe, 10)
        for _ in range(random.Random(seed).randrange(1, 400)):
            last = os.read(pipe, 10)
        writer.kill()
        while more := os.read(pipe, 10):
            last = more
        assert int(last) > acknowledged
        acknowledged = int(last)
        writer.stdout.close()
        assert writer.wait() == -9
        numbers: list[int] = []
        for kind, payload in content(tmp_path, lambda sentence: None):
            number = int(payload[:10])
            if kind == 2:
                numbers = list(range(number + 1))
            else:
                assert payload[10:] == bytes(number * 37 % 5_000)
                numbers.append(number)
        assert numbers == list(range(len(numbers)))
        assert acknowledged <= len(numbers) <= acknowledged + 7
