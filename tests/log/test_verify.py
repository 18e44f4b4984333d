"""A survey gives everything that is whole, verify lists every problem, and neither changes anything."""

from __future__ import annotations

from random import Random

import pytest

from tenure.errors import Corrupt
from tenure.log import Frame, checkpoint
from tenure.log.damage.revisit import Revisit
from tenure.log.damage.survey import Survey
from tenure.log.damage.verify import Report, verify
from tenure.log.frame import HEADER_BYTES
from tenure.log.segment import HEAD_BYTES, list_heads, segment_name
from tenure.testing.simdisk import SimDisk
from tests.log.model import Model, open_log


def chain(segments: int = 4) -> tuple[SimDisk, Model]:
    disk, model = SimDisk(1), Model()
    log, _ = open_log(disk)
    while len(log.segments()) < segments:
        number = len(model.history)
        model.append(log, [(20, number + 1, b"%03d" % number * 50), (21, number + 1, b"second")])
        log.write()
    log.close()
    return disk, model


def surveyed(disk: SimDisk) -> tuple[list[tuple[int, int, bytes]], Report]:
    """The frames of every whole batch, and the report; all frames read back where they were found."""
    before = {name: disk.content(name) for name in disk.names()}
    survey = Survey(disk)
    batches = list(survey.batches())
    revisit = Revisit(survey)
    for frames, _ in batches:
        for kind, topic, location, body in frames:
            assert revisit.read(location) == (kind, topic, body)
    revisit.close()
    assert {name: disk.content(name) for name in disk.names()} == before, "the directory is not changed"
    assert survey.report() == verify(disk)
    return [_entry(frame) for frames, whole in batches if whole for frame in frames], survey.report()


def without(model: Model, report: Report) -> list[tuple[int, int, bytes]]:
    lost = {batch for problem in report.problems for batch in range(problem.first_batch, problem.last_batch + 1)}
    return [_entry(frame) for batch, frame in model.history if batch not in lost]


def _entry(frame: Frame) -> tuple[int, int, bytes]:
    return frame[0], frame[1], frame[3]


def test_a_sound_log_has_no_problems_and_is_given_whole() -> None:
    disk, model = chain()
    entries, report = surveyed(disk)
    assert report.problems == []
    assert report.torn is None
    assert report.segments == 4
    assert report.frames == len(model.history)
    assert entries == [_entry(frame) for _, frame in model.history]


def test_a_damaged_batch_is_given_up_by_name_and_the_rest_is_surveyed() -> None:
    """Fault 7."""
    disk, model = chain()
    batch, (_, topic, location, _) = model.history[4]
    offset = location & 0xFFFFFFFF
    disk.flip_bit(segment_name(location >> 32), (offset + 50) * 8)
    entries, report = surveyed(disk)
    [problem] = report.problems
    assert (problem.first_batch, problem.last_batch) == (batch, batch)
    assert problem.file == segment_name(location >> 32)
    assert problem.offset <= offset + 50 < problem.end
    assert problem.topics == (topic,)
    assert entries == without(model, report)
    assert len(entries) == len(model.history) - 2


def test_a_batch_that_was_cut_out_does_not_cost_the_one_that_took_its_place() -> None:
    disk, model = chain()
    name, content = segment_name(1), disk.content(segment_name(1))
    lost, (_, _, location, _) = model.history[2]
    start, end = location & 0xFFFFFFFF, model.history[4][1][2] & 0xFFFFFFFF
    disk.put(name, content[:start] + content[end:] + bytes(end - start))
    entries, report = surveyed(disk)
    assert [(problem.first_batch, problem.last_batch) for problem in report.problems] == [(lost, lost)]
    assert entries == without(model, report)


def test_every_single_flip_costs_at_most_one_batch() -> None:
    """Fault 7: random flips; what is given and what is listed add up to everything."""
    disk, model = chain()
    random = Random(5)
    for _ in range(300):
        head = random.choice(list_heads(disk)[:-1])
        size = len(disk.content(segment_name(head.number)))
        world = disk.kill()
        bit = random.randrange(size * 8)
        if bit >> 3 in range(8, 12):
            continue  # That would be a newer format, which is not looked into.
        world.flip_bit(segment_name(head.number), bit)
        entries, report = surveyed(world)
        assert len(report.problems) == 1, report
        assert entries == without(model, report)
        assert len(entries) >= len(model.history) - 2


def test_several_wounds_are_all_listed() -> None:
    disk, model = chain()
    for number in (1, 2, 3):
        disk.flip_bit(segment_name(number), 300 * 8)
        disk.flip_bit(segment_name(number), 1000 * 8)
    entries, report = surveyed(disk)
    assert len(report.problems) == 6
    assert entries == without(model, report)


def test_a_missing_segment_is_listed_with_its_batches() -> None:
    """Fault 10."""
    disk, model = chain()
    heads = list_heads(disk)
    disk.remove(segment_name(2))
    entries, report = surveyed(disk)
    [problem] = report.problems
    assert problem.file == segment_name(2)
    assert (problem.first_batch, problem.last_batch) == (heads[1].first_batch, heads[2].first_batch - 1)
    assert entries == without(model, report)


def test_a_cut_segment_gives_up_only_what_was_cut_off() -> None:
    """Fault 10."""
    disk, model = chain()
    disk.put(segment_name(2), disk.content(segment_name(2))[:700])
    entries, report = surveyed(disk)
    assert entries == without(model, report)
    assert len(entries) > len(model.history) - 16


def test_swapped_segments_are_put_in_order() -> None:
    """Fault 10: nothing is lost, the files only have the wrong names."""
    disk, model = chain()
    two, three = disk.content(segment_name(2)), disk.content(segment_name(3))
    disk.put(segment_name(2), three)
    disk.put(segment_name(3), two)
    entries, report = surveyed(disk)
    assert [(problem.file, problem.offset, problem.end) for problem in report.problems] == [
        (segment_name(2), 0, HEAD_BYTES),
        (segment_name(3), 0, HEAD_BYTES),
    ]
    assert entries == [_entry(frame) for _, frame in model.history]


def test_a_damaged_head_does_not_cost_its_segment() -> None:
    disk, model = chain()
    disk.flip_bit(segment_name(2), 20 * 8)
    entries, report = surveyed(disk)
    assert [problem.file for problem in report.problems] == [segment_name(2)]
    assert (report.problems[0].offset, report.problems[0].end) == (0, HEAD_BYTES)
    assert entries == [_entry(frame) for _, frame in model.history]


def test_segments_of_which_nothing_is_left_are_named_with_their_ranges() -> None:
    disk, _ = chain()
    sizes = {name: len(disk.content(name)) for name in map(segment_name, range(1, 5))}
    for name, size in sizes.items():
        disk.put(name, b"\xff" * size)
    entries, report = surveyed(disk)
    lost = [problem for problem in report.problems if "no frame in it can be verified" in problem.why]
    assert [(problem.file, problem.offset, problem.end) for problem in lost] == [
        (name, HEAD_BYTES, size) for name, size in sizes.items()
    ]
    assert entries == []


def test_a_newer_format_is_refused_and_not_reported_as_damage() -> None:
    disk, _ = chain()
    content = disk.content(segment_name(2))
    disk.put(segment_name(2), content[:8] + (99).to_bytes(4, "little") + content[12:])
    with pytest.raises(Corrupt) as refused:
        verify(disk)
    assert refused.value.code == "format_too_new"


def test_the_epoch_is_known_from_the_heads_where_no_frame_is_left() -> None:
    disk, model = SimDisk(1), Model()
    for _ in range(3):
        log, _ = open_log(disk)
        while len(log.segments()) < log.epoch:
            model.append(log, [(20, 1, b"x" * 200)])
            log.write()
        log.close()
    assert list_heads(disk)[-1].epoch == 3
    for number in range(1, 4):
        content = disk.content(segment_name(number))
        disk.put(segment_name(number), content[:HEAD_BYTES] + b"\xff" * (len(content) - HEAD_BYTES))
    assert verify(disk).epoch == 3


def test_the_epoch_is_known_from_a_whole_frame_of_a_broken_batch() -> None:
    disk = SimDisk(1)
    open_log(disk)[0].close()
    log, _ = open_log(disk)
    opening = log.position().last_offset
    broken, _ = log.append([(20, 1, b"broken"), (20, 1, b"whole")])
    log.write()
    for offset in (opening, broken & 0xFFFFFFFF):
        disk.flip_bit(segment_name(1), (offset + 9) * 8)
    report = verify(disk)
    assert (len(report.problems), report.torn, report.epoch) == (1, None, log.epoch)


def empty_frames_without_a_prefix() -> tuple[SimDisk, Model]:
    """Segments that begin with a frame without a body, the first of them dropped and the head of the next damaged."""
    disk, model = SimDisk(1), Model()
    log, _ = open_log(disk)
    while len(log.segments()) < 4:
        model.append(log, [(20, len(model.history) + 1, b"")])
        log.write()
    log.drop(1)
    log.close()
    disk.flip_bit(segment_name(2), 20 * 8)
    return disk, model


def test_the_first_batch_of_a_segment_without_a_head_is_read_from_a_frame_without_a_body() -> None:
    disk, model = empty_frames_without_a_prefix()
    entries, report = surveyed(disk)
    assert [problem.file for problem in report.problems] == [segment_name(2)]
    assert entries == [_entry(frame) for _, frame in model.history if frame[2] >> 32 > 1]


def test_a_first_frame_that_is_shorter_than_its_header_is_damage_like_any_other() -> None:
    disk, model = empty_frames_without_a_prefix()
    content = disk.content(segment_name(2))
    short = (HEADER_BYTES - 1).to_bytes(4, "little")
    disk.put(segment_name(2), content[:HEAD_BYTES] + short + content[HEAD_BYTES + 4 :])
    entries, report = surveyed(disk)
    assert [problem.offset for problem in report.problems] == [0, HEAD_BYTES]
    assert entries == [_entry(frame) for _, frame in model.history if frame[2] >> 32 > 1][1:]


def test_a_dropped_prefix_is_no_problem() -> None:
    disk, _ = chain()
    log, _ = open_log(disk)
    log.drop(1)
    log.close()
    assert verify(disk).problems == []


def test_a_torn_tail_is_told_apart_from_damage() -> None:
    """Fault 5: those batches were never acknowledged."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"kept")])
    log.sync()
    log.append([(20, 9, b"torn")])
    log.write()
    disk.flip_bit(segment_name(1), (log.position().offset - 1) * 8)
    report = verify(disk)
    assert report.problems == []
    assert report.torn is not None
    assert report.torn.first_batch == report.torn.last_batch == log.written_batch
    assert (report.torn.file, report.torn.end) == (segment_name(1), log.position().offset)
    assert surveyed(disk.kill())[0] == [(20, 1, b"kept")]


def test_a_later_batch_that_knows_only_of_an_earlier_sync_does_not_make_a_torn_tail_damage() -> None:
    """Fault 5: the batch after the torn one was written before any sync of the torn one."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"kept")])
    log.sync()
    log.append([(20, 8, b"torn")])
    log.write()
    torn_end = log.position().offset
    log.append([(20, 9, b"torn too")])
    log.write()
    disk.flip_bit(segment_name(1), (torn_end - 1) * 8)
    report = verify(disk)
    assert report.problems == []
    assert report.torn is not None
    assert (report.torn.first_batch, report.torn.last_batch) == (log.written_batch - 1, log.written_batch)
    assert (report.torn.end, report.torn.topics) == (log.position().offset, (9,))


def test_every_whole_batch_is_counted_once() -> None:
    disk = SimDisk(1)
    log, _ = open_log(disk)
    for _ in range(5):
        log.append([(20, 1, b"x"), (20, 1, b"y")])
        log.write()
    log.close()
    assert (verify(disk).batches, verify(disk).frames) == (log.written_batch, 10)


def test_a_segment_from_another_history_gives_only_batches_that_are_new() -> None:
    """Fault 10: a segment was restored from an old copy, in which fewer batches came before it."""
    histories = []
    for sizes in ([1] * 200, [1076] + [1] * 200):  # the first segments end at the same place
        disk = SimDisk(1)
        log, _ = open_log(disk)
        for size in sizes:
            log.append([(20, 1, b"%06d" % log.pending_batch + b"x" * size)])
            log.write()
            if len(log.segments()) == 3:
                break
        log.close()
        histories.append(disk)
    disk, other = histories
    disk.put(segment_name(2), other.content(segment_name(2)))
    for name in [name for name in disk.names() if name not in map(segment_name, (1, 2))]:
        disk.remove(name)
    frames = [frame for batch in Survey(disk).batches() for frame in batch.frames]
    batches = [(frame[2] >> 32, int(frame[3][:6])) for frame in frames]
    first = [batch for segment, batch in batches if segment == 1]
    second = [batch for segment, batch in batches if segment == 2]
    assert list_heads(other)[1].first_batch < first[-1], "the two histories overlap"
    assert second == list(range(first[-1] + 1, second[-1] + 1))


def test_unreadable_pages_cost_only_what_lies_in_them() -> None:
    """Fault 14: the disk refuses some bytes of a segment."""
    disk, model = chain()
    pread = disk.pread

    def refusing(file: int, count: int, offset: int) -> bytes:
        if disk._files[file] is disk._inodes[segment_name(2)] and offset < 900 < offset + count:
            raise OSError(5, "Input/output error")
        return pread(file, count, offset)

    disk.pread = refusing  # type: ignore[method-assign]
    entries, report = surveyed(disk)
    assert report.problems
    assert entries == without(model, report)


def test_what_is_whole_of_a_broken_batch_is_given_as_such() -> None:
    """Fault 7: a batch of a hundred calls does not go with one of them."""
    disk, model = SimDisk(1), Model()
    log, _ = open_log(disk)
    model.append(log, [(20, number, b"%03d" % number) for number in range(1, 10)])
    log.close()
    _, (_, _, location, _) = model.history[3]
    disk.flip_bit(segment_name(1), ((location & 0xFFFFFFFF) + 38) * 8)
    parts = [frame for frames, whole in Survey(disk).batches() if not whole for frame in frames]
    assert parts == [frame for _, frame in model.history if frame[2] != location]
    [problem] = verify(disk).problems
    assert problem.topics == tuple(range(1, 10))


def test_no_head_at_all_does_not_cost_what_lies_behind() -> None:
    """The salt is found again from the frames themselves, also if some of these are damaged too."""
    for segments in (1, 3):
        disk, model = chain(segments) if segments > 1 else one_segment()
        for number in range(1, segments + 1):
            for bit in range(0, HEAD_BYTES * 8, 7):
                if bit >> 3 not in range(8, 12):
                    disk.flip_bit(segment_name(number), bit)
        entries, report = surveyed(disk)
        assert len(report.problems) == segments
        assert entries == [_entry(frame) for _, frame in model.history]
        disk.flip_bit(segment_name(1), (HEAD_BYTES + 20) * 8)
        entries, report = surveyed(disk)
        assert len(report.problems) == segments + 1
        assert entries == [_entry(frame) for _, frame in model.history], "only the log's own first frame is lost"


def one_segment() -> tuple[SimDisk, Model]:
    disk, model = SimDisk(1), Model()
    log, _ = open_log(disk)
    for number in range(5):
        model.append(log, [(20, number + 1, b"%03d" % number * 5)])
        log.write()
    log.close()
    return disk, model


def test_a_head_is_not_needed_behind_a_dropped_prefix() -> None:
    disk, model = chain()
    log, _ = open_log(disk)
    log.drop(1)
    log.close()
    disk.flip_bit(segment_name(2), 20 * 8)
    entries, report = surveyed(disk)
    assert [problem.file for problem in report.problems] == [segment_name(2)]
    assert entries == [_entry(frame) for _, frame in model.history if frame[2] >> 32 > 1]


def test_a_head_that_is_damaged_does_not_hide_that_the_end_before_it_is_cut_off() -> None:
    disk, model = chain()
    heads = list_heads(disk)
    disk.put(segment_name(2), disk.content(segment_name(2))[:700])
    disk.flip_bit(segment_name(3), 20 * 8)
    entries, report = surveyed(disk)
    assert entries == without(model, report)
    assert max(problem.last_batch for problem in report.problems) == heads[2].first_batch - 1
    [missing] = [problem for problem in report.problems if "missing before it" in problem.why]
    assert (missing.file, missing.offset) == (segment_name(3), HEAD_BYTES)


def test_checkpoints_without_segments_are_a_problem() -> None:
    """Fault 9: opening refuses that directory, so it is not "no problem, empty"."""
    disk, _ = chain()
    log, _ = open_log(disk)
    checkpoint.save(disk, log.position(), b"state")
    log.close()
    assert verify(disk).problems == []
    for number in range(1, 5):
        disk.remove(segment_name(number))
    [problem] = verify(disk).problems
    assert "the log itself is missing" in problem.why
    assert verify(SimDisk(3)).problems == [], "an empty directory is a new one"
