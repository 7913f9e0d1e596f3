"""Frames, and where the agent is."""

from __future__ import annotations

import os
import tempfile
import unittest
from unittest import mock

from primacy import _wire
from primacy._errors import MalformedFrame
from primacy._wire import BackOff, FrameReader


class Frames(unittest.TestCase):
    def test_frames_are_cut_at_newlines_however_they_come(self) -> None:
        data = b'{"type": "a"}\n{"type": "b", "text": "\xc3\xa4"}\n{"type": "c"}\n'
        for size in range(1, len(data) + 1):
            reader, kinds = FrameReader(), []
            for start in range(0, len(data), size):
                kinds += [frame["type"] for frame in reader.feed(data[start : start + size])]
            self.assertEqual(kinds, ["a", "b", "c"], size)

    def test_frames_before_a_malformed_one_are_read(self) -> None:
        frames = FrameReader().feed(b'{"type": "a"}\nnonsense\n{"type": "b"}\n')
        self.assertEqual(next(frames), {"type": "a"})
        with self.assertRaises(MalformedFrame):
            next(frames)

    def test_what_is_no_object_with_a_type_is_malformed(self) -> None:
        deep = b"[" * 100_000
        lines = [b"", b"[]", b"1", b"{}", b'{"type": 1}', b'{"type": "a", "x": NaN}', b"\xff", deep]
        for line in lines:
            with self.subTest(line[:20]), self.assertRaises(MalformedFrame):
                _wire.decode(line)

    def test_a_frame_of_the_agent_is_at_most_so_long(self) -> None:
        room = _wire.ANSWER_BYTES_MAX - len(b'{"type": ""}\n')
        longest = b'{"type": "%s"}\n' % (b"a" * room)
        self.assertEqual(len(list(FrameReader().feed(longest))), 1)
        for data in (b'{"type": "%s"}\n' % (b"a" * (room + 1)), b"a" * _wire.ANSWER_BYTES_MAX):
            with self.assertRaises(MalformedFrame):
                list(FrameReader().feed(data))

    def test_a_frame_of_the_program_is_at_most_so_long(self) -> None:
        room = _wire.FRAME_BYTES_MAX - len(b'{"type":""}\n')
        self.assertEqual(len(_wire.encode({"type": "a" * room})), _wire.FRAME_BYTES_MAX)
        with self.assertRaises(ValueError):
            _wire.encode({"type": "a" * (room + 1)})

    def test_what_is_written_is_one_line(self) -> None:
        line = _wire.encode({"type": "a", "text": "one\ntwo ä"})
        self.assertEqual(line.count(b"\n"), 1)
        self.assertEqual(list(FrameReader().feed(line)), [{"type": "a", "text": "one\ntwo ä"}])

    def test_tokens_are_digits(self) -> None:
        self.assertEqual(_wire.token({"type": "a", "token": "9223372036854775807"}), 2**63 - 1)
        for wrong in (7, "", "-1", "1.0", "٣", "x", None, "1" * 21):
            with self.subTest(wrong), self.assertRaises(MalformedFrame):
                _wire.token({"type": "a", "token": wrong})

    def test_numbers_are_whole(self) -> None:
        for wrong in (True, 1.0, "1", None):
            with self.subTest(wrong), self.assertRaises(MalformedFrame):
                _wire.integer({"type": "a", "n": wrong}, "n")


class Places(unittest.TestCase):
    def test_the_socket_is_where_it_is_said_to_be(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "primacy"), 0o700)
            there = os.path.join(folder, "primacy", "agent.sock")
            environment = {"XDG_RUNTIME_DIR": folder}
            with mock.patch.dict(os.environ, environment, clear=True):
                self.assertEqual(_wire.agent_path(None), "/run/primacy/agent.sock")
                with open(there, "w", encoding="utf-8"):
                    self.assertEqual(_wire.agent_path(None), there)
                with mock.patch("os.geteuid", return_value=os.geteuid() + 1):
                    self.assertEqual(_wire.agent_path(None), "/run/primacy/agent.sock")
                for open_folder in (folder, os.path.dirname(there)):
                    for mode in (0o1777, 0o770, 0o702):
                        os.chmod(open_folder, mode)
                        self.assertEqual(_wire.agent_path(None), "/run/primacy/agent.sock")
                    os.chmod(open_folder, 0o755)
                    self.assertEqual(_wire.agent_path(None), there)
                os.environ["PRIMACY_AGENT"] = "/elsewhere"
                self.assertEqual(_wire.agent_path(None), "/elsewhere")
                self.assertEqual(_wire.agent_path("/given"), "/given")

    def test_attempts_come_at_growing_distances(self) -> None:
        longest, shortest = BackOff(lambda: 1.0), BackOff(lambda: 0.0)
        expected = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
        self.assertEqual([longest.next_s() for _ in expected], expected)
        self.assertEqual([shortest.next_s() for _ in expected], [s / 2 for s in expected])
        longest.reset()
        self.assertEqual(longest.next_s(), 0.05)
