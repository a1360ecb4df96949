"""FSDP2 over gloo, with and without tensor parallelism: goes on bit for bit, and is loaded by jobs of any shape."""

import pytest

import fork_server
import fsdp_trainer
from waystation import _core
from waystation.errors import Error

PROCESSES = fork_server.processes("torch_trainer", "fsdp_trainer")
STEPS, SAVE_AT = 14, 6
DP2, DP4, GRID, ALONE = (("dp",), (2,)), (("dp",), (4,)), (("dp", "tp"), (2, 2)), ((), ())


def run(tmp_path, shape, task, **arguments):
    """What `task` gives on every rank of a job of that shape."""
    axes, sizes = shape
    size = 1
    for each in sizes:
        size *= each
    store = tmp_path / f"store-{len(list(tmp_path.glob('store-*')))}"
    pipes, processes = [], []
    for rank in range(size):
        mine, its = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=fsdp_trainer.job, args=(
            its, str(store), rank, size, task, {"axes": axes, "sizes": sizes} | arguments))
        process.start()
        its.close()
        pipes.append(mine)
        processes.append(process)
    answers = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return answers


def works(answers):
    for answer in answers:
        if isinstance(answer, Error):
            raise answer
    return answers


@pytest.fixture(scope="module", params=[DP2, GRID], ids=["dp2", "dp2tp2"])
def saved(request, tmp_path_factory):
    """A job's shape, and what each of its ranks told of a training that was not interrupted."""
    folder = tmp_path_factory.mktemp("run")
    answers = works(run(folder, request.param, "train", run=str(folder / "run"), steps=STEPS, save_at=SAVE_AT))
    path = answers[0][3][0]
    _core.verify_json(path)
    assert all(answer[3][0] == path for answer in answers)
    return request.param, path, answers


def test_goes_on_bit_for_bit(saved, tmp_path):
    shape, path, whole = saved
    again = works(run(tmp_path, shape, "resume", path=path, steps=STEPS - SAVE_AT))
    for (losses, tensors, own, then), (grades, at_once, later, after, own_after) in zip(whole, again):
        assert set(grades.values()) == {"exact"}
        assert at_once == then[1:]
        assert later == losses[SAVE_AT:]
        assert (after, own_after) == (tensors, own)
    assert len({answer[2][0] for answer in again}) == 2  # ranks along dp have losses of their own


@pytest.mark.parametrize("shape", [ALONE, DP2, DP4, GRID], ids=["1", "dp2", "dp4", "dp2tp2"])
def test_loads_on_any_shape_and_says_what_of_it_is_a_fork(saved, tmp_path, shape):
    before, path, whole = saved
    if shape == before:
        pytest.skip("that is no other shape")
    same_dp = shape[1][:1] == (2,)
    more = {"strict": False, "leave_out": ["torch", "python", "numpy"]} if shape == ALONE else {}
    answers = run(tmp_path, shape, "resume", path=path, steps=2, **more)
    if not same_dp and shape != ALONE:
        assert all(answer.code == "not-exact" and "fork" in str(answer) for answer in answers)
        answers = run(tmp_path, shape, "resume", path=path, steps=2, streams="fork", strict=False)
    elif shape != ALONE:
        # The buffer of each rank is of a job of that shape: another one has none of its own.
        answers = run(tmp_path, shape, "resume", path=path, steps=2, strict=False)
    tensors = whole[0][3][1]
    for grades, (at_once, _), _, _, _ in works(answers):
        assert at_once == tensors
        expected = "exact" if same_dp else "none" if shape == ALONE else "fork"
        assert {grades["rng", name] for name in ("torch", "python", "numpy")} == {expected}
        assert grades["cursor", "train"] == "exact"
    if shape == DP4:
        states = {answer[1][1]["torch"] for answer in answers}
        assert len(states) == 4


@pytest.mark.parametrize("what", ["buffer", "rate", "slot"])
def test_ranks_that_hold_something_else_are_found_before_anything_is_saved(tmp_path, what):
    raised = run(tmp_path, DP2, "disagree", run=str(tmp_path / "run"), what=what)
    assert [error.code for error in raised] == ["state-disagree"] * 2
    assert all("rank 0 against rank 1" in str(error) for error in raised)
    if what == "buffer":
        assert all("buffer seen" in str(error) for error in raised)
    with pytest.raises(Error, match="no-checkpoint"):
        _core.latest_json(str(tmp_path / "run"))


def test_without_comparing_the_owners_bytes_are_saved(tmp_path):
    works(run(tmp_path, DP2, "disagree", run=str(tmp_path / "run"), what="buffer", check_replicas=False))
    assert _core.latest_json(str(tmp_path / "run"))
