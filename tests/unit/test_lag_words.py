"""What `streams lag` says and shows: sentences, explanations, the table, JSON, pictures and the size alone."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.cli import _lag_plot, lag
from streams.cli import _lag_show as show
from streams.cli.main import app
from streams.core.explain import explanation
from streams.core.flow import Flow, Shape
from streams.core.groups import Partition
from streams.core.health import Health
from streams.core.lag import GroupLag, PartitionLag
from streams.core.outlook import Outlook, Parked, PartitionOutlook, outlook
from streams.core.sentences import figure, rate, sentence, size_sentence
from streams.core.series import Place, Sample
from streams.core.sizing import Advice, Hot, Shared
from streams.errors import ConfigError, Unavailable
from streams.ops.lag_history import Chart, Mark

P, Q = Partition("t", 0), Partition("t", 1)


def _lag(lag: int | None = 4_200, age: float | None = 61.0, members: int | None = 10) -> GroupLag:
    rows = tuple(PartitionLag(*one, 1, 0, 9, 3, 0, 1.0) for one in (P, Q))
    return GroupLag("g", "Stable", lag, age, rows, members)


def _flow(shape: Shape | None, rate_in: float, rate_out: float, backlog: float, drain: float | None) -> Flow:
    return Flow(60.0, 13, rate_in, rate_out, backlog, shape, None, drain)


RAMP = _flow(Shape.RAMP, 30, 20, 4_200, None)
DECAY = _flow(Shape.SPIKE_DECAY, 200, 300, 4_200, 42.0)
FLAT = _flow(Shape.FLAT, 200, 200, 3, 0.0)


def _seen(flow: Flow | None, health: Health | None = Health.OK, members: int | None = 10, **more) -> Outlook:
    drain = flow.drain_seconds if flow else None
    return Outlook(**{"lag": _lag(members=members), "flow": flow, "health": health, "drain_seconds": drain, **more})


def _advice(more: int | None, a_job: float | None = 0.5, workers: int | None = 10, most: int = 32, **why) -> Advice:
    return Advice(10.0, more, a_job, workers, most, **why)


def _parts(*healths: Health) -> dict[Partition, PartitionOutlook]:
    return {Partition("t", n): PartitionOutlook(health=health) for n, health in enumerate(healths)}


RAMP_PART = {P: PartitionOutlook(FLAT), Q: PartitionOutlook(_flow(Shape.RAMP, 25, 20, 900, None))}

SENTENCES = [
    (Outlook(_lag(7)), "g: lag 7, the oldest waits 1 min 1 s"),
    (Outlook(_lag(None, None)), "g: lag ?, the oldest waits ?"),
    (Outlook(_lag(0, 0.0)), "g: caught up"),
    (_seen(FLAT), "g: flat, keeps up with 200 jobs/s"),
    (_seen(_flow(Shape.FLAT, 0, 0, 0, 0.0)), "g: flat, caught up, nothing comes"),
    (
        _seen(_flow(Shape.FLAT, 200, 200, 4_200, None)),
        "g: flat, 4,200 jobs wait and are not getting fewer: 200 jobs/s come",
    ),
    (_seen(DECAY), "g: spike-decay, 4,200 jobs wait, done in 42 s: 300 jobs/s are done and 200 come"),
    (_seen(_flow(None, 200, 200, 1, None)), "g: 1 job waits, it is too early to say how it goes on"),
    (_seen(RAMP), "g: ramp, falls 10 jobs/s short"),
    (_seen(RAMP, advice=_advice(5)), "g: ramp, falls 10 jobs/s short; 5 more workers at 0.5 s a job"),
    (_seen(RAMP, advice=_advice(1, 0.012)), "g: ramp, falls 10 jobs/s short; 1 more worker at 0.012 s a job"),
    (_seen(RAMP, advice=_advice(None, None)), "g: ramp, falls 10 jobs/s short"),
    (
        _seen(RAMP, advice=_advice(5, most=12)),
        "g: ramp, falls 10 jobs/s short; 5 more workers at 0.5 s a job, but 12 partitions let only 2 more work: "
        "more partitions are needed",
    ),
    (
        _seen(RAMP, advice=_advice(5, workers=1, most=1)),
        "g: ramp, falls 10 jobs/s short; 5 more workers at 0.5 s a job, but 1 partition let no more work: "
        "more partitions are needed",
    ),
    (
        _seen(RAMP, advice=_advice(5, hot=Hot(Q, 25, 20))),
        "g: ramp, falls 10 jobs/s short; t:1 alone gets 25 jobs/s and a worker does 20: more workers cannot help, "
        "a key of it is too hot",
    ),
    (
        _seen(RAMP, advice=_advice(5, shared=Shared(1, 100, 4, 104))),
        "g: ramp, falls 10 jobs/s short; 1 worker did 100 jobs/s and 4 do 104: more workers cannot help, "
        "what they write to is the limit",
    ),
    (
        _seen(FLAT, drain_seconds=None, partitions=RAMP_PART),
        "g: flat, keeps up with 200 jobs/s, but t:1 falls 5 jobs/s short",
    ),
    (
        _seen(RAMP, Health.STOP, 0, partitions=_parts(Health.STOP, Health.STOP)),
        "g: STOP, nobody reads; 4,200 jobs wait and 30 jobs/s come",
    ),
    (
        _seen(_flow(Shape.FLAT, 0, 0, 28, None), Health.STOP, 0, partitions=_parts(Health.STOP, Health.STOP)),
        "g: STOP, nobody reads; 28 jobs wait and nothing comes",
    ),
    (
        _seen(RAMP, Health.STOP, 2, partitions=_parts(Health.OK, Health.STOP)),
        "g: STOP, nothing is committed any more in t:1; 4,200 jobs wait and 30 jobs/s come",
    ),
    (
        _seen(None, Health.STOP, None, partitions=_parts(Health.STOP, Health.STOP)),
        "g: STOP, nothing is committed any more; lag 4200, the oldest waits 1 min 1 s",
    ),
    (
        _seen(RAMP, Health.STALL, 1, partitions=_parts(Health.STALL, Health.STALL)),
        "g: STALL, it has 1 worker and nothing gets done; 4,200 jobs wait and 30 jobs/s come",
    ),
    (
        _seen(RAMP, Health.STALL, 4, partitions=_parts(Health.STALL, Health.STALL, Health.OK)),
        "g: STALL, it has 4 workers and nothing gets done in t:0 and others; 4,200 jobs wait and 30 jobs/s come",
    ),
    (
        _seen(DECAY, Health.REWIND),
        "g: REWIND, it was set back; spike-decay, 4,200 jobs wait, done in 42 s: 300 jobs/s are done and 200 come",
    ),
    (
        _seen(FLAT, parked=Parked(1_200, 61.0)),
        "g: flat, keeps up with 200 jobs/s; 1,200 parked, the oldest for 1 min 1 s",
    ),
    (_seen(FLAT, parked=Parked(0, None)), "g: flat, keeps up with 200 jobs/s"),
]


@pytest.mark.parametrize(("seen", "said"), SENTENCES, ids=range(len(SENTENCES)))
def test_a_group_in_one_sentence(seen: Outlook, said: str):
    assert sentence(seen) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0"),
        (0.5, "0.5"),
        (0.012, "0.012"),
        (0.0127, "0.013"),
        (2.0, "2"),
        (2.25, "2.2"),
        (9.96, "10"),
        (1234, "1,234"),
        (4e-08, "0"),
    ],
)
def test_two_figures_say_enough(number: float, said: str):
    assert figure(number) == said


def test_a_rate_is_whole_above_ten():
    assert [rate(number) for number in (0.04, 9.94, 12.6, 12_345.6)] == ["0.04", "9.9", "13", "12,346"]


# ------------------------------------------------------------------------------------------- shown and explained


def _measured() -> Outlook:
    """Thirteen samples of a group that is 10 jobs/s short, with a marker behind each record."""
    samples = []
    for n in range(13):
        at, done = n * 5.0, 20 * n * 5
        arrived = 30 * n * 5 + 1_000
        place = Place(2 * done, 2 * arrived, 2 * (arrived - done), arrived, done, arrived - done)
        samples.append(Sample(at, 10, {P: place, Q: Place(0, 0, 0, 0, 0, 0)}))
    last = samples[-1].places[P]
    rows = (
        PartitionLag("t", 0, last.committed, 0, last.end, last.lag, 0, 61.0),
        PartitionLag("t", 1, 0, 0, 0, 0, 0, 0.0),
    )
    lag = GroupLag("g", "Stable", last.lag, 61.0, rows, 10)
    return outlook(lag, samples, {P: Parked(3, 65.0)}, seconds_a_job=0.5)


def test_every_number_is_explained_by_what_it_was_made_from():
    assert explanation(_measured()) == [
        "LAG 3,200 offsets: from the commit to the end of the log, added over 2 partitions",
        "AGE 1 min 1 s: now less the time of the oldest record at a commit",
        "RATE-IN 30 jobs/s, by the median slope of all pairs of 13 samples over 1 min 0 s; the ends of the logs moved "
        "3,600 offsets in all samples, of which 0.5 are records by what was read of them",
        "RATE-OUT 20 jobs/s, likewise; the commits moved 2,400 offsets in all samples, of which 0.5 are records by "
        "what was read of them",
        "PARKED 3 rows of readers.parked: they failed and wait, outside of the log",
        "SHAPE ramp: +10 jobs/s make +600 records over 1 min 0 s, which chance does not explain",
        "DRAINS-IN never at these rates: in one partition at least, no more is done than comes",
        "HEALTH WARN, of the worst partition: Burrow's rule 5: the position moves, and the lag got smaller from no "
        "sample to the next",
        "WORKERS 5 more: 10 jobs/s short * 0.5 s a job (Little's law)",
    ]


def test_what_is_not_known_is_explained_too():
    assert explanation(Outlook(_lag(None, None))) == [
        "LAG unknown: the position or the log of at least one partition is unknown",
        "AGE unknown: the record at a commit could not be read, or has no time",
        "RATE-IN, RATE-OUT unknown: fewer than three samples; --measure 10 takes some, and `streams api` records",
    ]


def test_the_drain_is_explained_as_a_quotient():
    said = explanation(_seen(DECAY, samples=_measured().samples))
    assert "DRAINS-IN 42 s: 4,200 records / (300 - 200) a second, of the slowest partition" in said
    assert any(line.startswith("SHAPE spike-decay: since the peak of the lag, -100 jobs/s") for line in said)


def test_the_table_has_all_columns_that_something_is_known_of():
    assert [" ".join(line.split()) for line in show.table([_measured()]).splitlines()] == [
        "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG AGE RATE-IN RATE-OUT PARKED OLDEST-PARKED SHAPE "
        "DRAINS-IN HEALTH STATE",
        "g t 0 2400 5600 3200 1 min 1 s 30/s 20/s 3 1 min 5 s ramp never WARN Stable",
        "g t 1 0 0 0 0 s 0/s 0/s 0 flat OK Stable",
    ]


def test_json_has_the_rates_of_the_group_and_of_each_partition():
    (group,) = json.loads(json.dumps(show.as_json([_measured()])))
    wanted = {
        "health": "WARN",
        "shape": "ramp",
        "rate_in_per_second": 30.0,
        "rate_out_per_second": 20.0,
        "backlog_records": 1600.0,
        "drain_seconds": None,
        "parked_records": 3,
        "oldest_parked_seconds": 65.0,
    }
    assert wanted.items() <= group.items()
    assert wanted.items() <= group["partitions"][0].items()
    assert group["partitions"][1]["drain_seconds"] == 0
    assert (
        group["sentence"] == "g: ramp, falls 10 jobs/s short; t:0 alone gets 30 jobs/s and a worker does 20: "
        "more workers cannot help, a key of it is too hot; 3 parked, the oldest for 1 min 5 s"
    )


def test_the_relay_shows_how_far_its_slot_is_behind():
    relay = Outlook(GroupLag("relay", "read", 0, 0.0, (PartitionLag("app.outbox", 0, 7, None, 7, 0, None, 0.0),), 1))
    seen = [Outlook(relay.lag, slot_bytes=1_234)]
    assert show.table(seen).splitlines()[1].endswith("read   slot 1,234 bytes behind")
    assert show.as_json(seen)[0]["slot_bytes"] == 1_234
    assert "slot_bytes" not in show.as_json([relay])[0]


@pytest.mark.parametrize(
    ("values", "picture"),
    [([], ""), ([0, 0], "▁▁"), ([5], "█"), ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"), ([70, 0, 35], "█▁▅")],
)
def test_a_sparkline_stands_on_the_ground(values: list[float], picture: str):
    assert show.sparkline(values) == picture


def test_each_sentence_stands_behind_its_picture():
    line = show.sparked([_measured()])
    assert line.startswith("▅▆▆▆▆▆▇▇▇▇███")
    assert line[show.SPARKS :] == "  " + sentence(_measured())
    assert show.sparked([]) == "The cluster has no consumer groups."


def test_a_watch_shows_pictures_and_the_table_and_goes_on_when_the_broker_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    answers: list[list[Outlook] | Exception] = [
        Unavailable("Kafka does not answer"),
        [_measured()],
        KeyboardInterrupt(),
    ]

    class Watched:
        fault = "Postgres is away"

        def measure(self) -> list[Outlook]:
            answer = answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer

    monkeypatch.setattr(lag.time, "sleep", lambda _: None)
    monkeypatch.setenv("COLUMNS", "300")
    lag._watch_table(Watched())
    said = capsys.readouterr()
    assert said.err == "error: Kafka does not answer\n"
    missing, _, first, empty, heads, *rows = (line.rstrip() for line in said.out.splitlines())
    assert missing == "warning: relay, rates and parked records may be missing: Postgres is away"
    assert first.startswith("▅▆▆▆▆▆▇▇▇▇███")
    assert (empty, heads.split()[:3], len(rows)) == ("", ["GROUP", "TOPIC", "PARTITION"], 2)


# --------------------------------------------------------------------------------------------------------- charts


def test_a_chart_is_a_png_with_a_line_for_each_group_and_mark(tmp_path: Path):
    chart = Chart(
        {"g": [(0.0, 5), (60.0, 9)], "h": [(0.0, 1), (60.0, 0)]}, [Mark(30.0, "replay", "g", "12 partitions")]
    )
    path = tmp_path / "lag.png"
    _lag_plot.plot(path, chart)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    bare = tmp_path / "bare.png"
    _lag_plot.plot(bare, Chart(chart.curves))
    assert bare.read_bytes() != path.read_bytes()  # the mark is drawn


def test_a_chart_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"absent/lag\.png cannot be written: No such file or directory"):
        _lag_plot.plot(tmp_path / "absent" / "lag.png", Chart({"g": [(0.0, 5)]}))


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    real = builtins.__import__

    def absent(name: str, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        _lag_plot.plot(tmp_path / "lag.png", Chart({}))


# ----------------------------------------------------------------------------------------------------------- size


@pytest.mark.parametrize("number", ["nan", "inf", "1e308", "-1"])
def test_no_size_is_told_of_what_is_no_number(number: str):
    for option, other in (("--rate", "--seconds-per-job"), ("--seconds-per-job", "--rate")):
        said = CliRunner().invoke(app, ["lag", "--size", option, number, other, "1"])
        assert (said.exit_code, "Invalid value" in said.output) == (2, True), said.output


def test_the_size_alone_needs_no_cluster(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STREAMS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    said = CliRunner().invoke(app, ["lag", "--size", "--rate", "50", "--seconds-per-job", "0.5"])
    assert (said.exit_code, said.stdout) == (0, "50 jobs/s at 0.5 s a job keep 25 workers busy\n")
    said = CliRunner().invoke(app, ["lag", "--size", "--rate", "50", "--seconds-per-job", "0.5", "--json"])
    assert json.loads(said.stdout) == {
        "rate_per_second": 50.0,
        "seconds_per_job": 0.5,
        "workers": 25,
        "workers_max": None,
        "sentence": "50 jobs/s at 0.5 s a job keep 25 workers busy",
    }


@pytest.mark.parametrize(
    ("rate", "a_job", "most", "said"),
    [
        (
            50,
            0.5,
            12,
            "50 jobs/s at 0.5 s a job keep 25 workers busy, but 12 partitions let only 12 work at once: more "
            "partitions are needed",
        ),
        (50, 0.5, 25, "50 jobs/s at 0.5 s a job keep 25 workers busy"),
        (0.2, 4, None, "0.2 jobs/s at 4 s a job keep 1 worker busy"),
    ],
)
def test_the_size_in_words(rate: float, a_job: float, most: int | None, said: str):
    assert size_sentence(rate, a_job, most) == said


@pytest.mark.parametrize(
    ("groups", "rate", "said"),
    [
        ([], None, "--size needs --rate and --seconds-per-job, or one --group to measure them of"),
        ([_seen(RAMP), _seen(RAMP)], None, "--size needs --rate and --seconds-per-job, or one --group"),
        ([_seen(None)], None, "the rate of g could not be measured: give --rate"),
        ([_seen(FLAT)], 50, "how long a job takes g is known only while work waits for its workers all the time"),
    ],
)
def test_a_size_that_cannot_be_measured_says_what_to_give(groups: list[Outlook], rate: float | None, said: str):
    with pytest.raises(ConfigError, match=said):
        lag._size_of(groups, rate, as_json=False)


def test_the_size_of_a_group_takes_from_it_what_was_not_given(capsys: pytest.CaptureFixture[str]):
    lag._size_of([_seen(RAMP, advice=_advice(5))], None, as_json=False)
    lag._size_of([_seen(RAMP, advice=_advice(5))], 8, as_json=False)
    capped = "but 2 partitions let only 2 work at once: more partitions are needed"
    assert capsys.readouterr().out.splitlines() == [
        f"30 jobs/s at 0.5 s a job keep 15 workers busy, {capped}",
        f"8 jobs/s at 0.5 s a job keep 4 workers busy, {capped}",
    ]


@pytest.mark.parametrize("args", [["--rate", "-1"], ["--seconds-per-job", "-1"], ["--measure", "0"]])
def test_impossible_numbers_are_refused(args: list[str]):
    said = CliRunner().invoke(app, ["lag", "--size", *args])
    assert said.exit_code == 2
    assert args[0] in said.stderr
    assert "greater than or equal to" in " ".join(said.stderr.replace("│", " ").split())
