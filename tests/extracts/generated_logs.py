"""Logs made up in the shapes of sixteen well known kinds of system: headers, levels and the proportions of trouble.

A stand-in for real logs where those are not on the machine. Every line is made here. For each system it is known which
statements report trouble, so an extract can be checked against them.
"""
# ruff: noqa: E501 - a statement of a log stands on one line

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LINES = 2_000


@dataclass(frozen=True, kw_only=True)
class System:
    """One kind of log.

    Attributes:
        name: Of the kind.
        header: Gives what stands before a statement, for a level.
        good: Statements of ordinary lines.
        bad: ``(level, statement)`` of lines about trouble.
        share: Part of the lines that are about trouble.
    """

    name: str
    header: Callable[[random.Random, int, str], str]
    good: tuple[str, ...]
    bad: tuple[tuple[str, str], ...]
    share: float


_FILLERS: dict[str, Callable[[random.Random], str]] = {
    "n": lambda r: str(r.randrange(1, 100_000)),
    "ip": lambda r: ".".join(str(r.randrange(1, 255)) for _ in range(4)),
    "hex": lambda r: f"0x{r.getrandbits(32):08x}",
    "path": lambda r: f"/srv/{r.choice(('data', 'jobs', 'spool'))}{r.randrange(99)}/part-{r.randrange(9999):05d}",
    "id": lambda r: f"{r.getrandbits(40):010x}{r.randrange(10)}",
    "host": lambda r: f"node{r.randrange(1, 400)}",
    "s": lambda r: f"{r.randrange(1, 90)}.{r.randrange(999):03d}",
}
_HOLE = re.compile(r"\{(\w+)\}")


def render(system: System, *, seed: int = 0) -> str:
    """The log: each statement about trouble at least once, the rest by share."""
    random_numbers = random.Random(f"{system.name}-{seed}")
    trouble = [*system.bad]
    while len(trouble) < LINES * system.share:
        trouble.append(random_numbers.choice(system.bad))
    lines: list[tuple[str, str]] = [*trouble]
    lines += [("", random_numbers.choice(system.good)) for _ in range(LINES - len(trouble))]
    random_numbers.shuffle(lines)
    return "\n".join(
        system.header(random_numbers, number, level)
        + _HOLE.sub(lambda hole: _FILLERS[hole[1]](random_numbers), statement)
        for number, (level, statement) in enumerate(lines)
    )


def fixed_words(statement: str) -> tuple[str, ...]:
    """The words of a statement that are the same on all its lines."""
    return tuple(word for word in statement.split() if _HOLE.search(word) is None)


def _clock(number: int) -> tuple[int, int, int]:
    return 8 + number // 3600 % 12, number // 60 % 60, number % 60


def _mixed(subjects: Sequence[str], troubles: Sequence[str], tails: Sequence[str], count: int) -> tuple[str, ...]:
    """Different statements: each subject with each trouble in turn."""
    return tuple(
        f"{subjects[number % len(subjects)]} {troubles[number // len(subjects) % len(troubles)]} "
        f"{tails[(number * 7 + number // 5) % len(tails)]}"
        for number in range(count)
    )


def _with_level(level: str, statements: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((level, statement) for statement in statements)


def _hdfs(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    return f"0912{number // 900 + 10} {hour:02d}{minute:02d}{second:02d} {r.randrange(9999)} {level or 'INFO'} dfs.Node$Mover: "


def _hadoop(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    thread = r.choice(("main", "Dispatcher event handler", f"Fetcher #{r.randrange(9)}"))
    return f"2021-03-0{number // 900 + 1} {hour:02d}:{minute:02d}:{second:02d},{r.randrange(999):03d} {level or 'INFO'} [{thread}] org.yard.job.Runner: "


def _spark(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    return f"21/06/0{number // 900 + 1} {hour:02d}:{minute:02d}:{second:02d} {level or 'INFO'} flow.Executor: "


def _zookeeper(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    return f"2021-07-2{number // 900 + 1} {hour:02d}:{minute:02d}:{second:02d},{r.randrange(999):03d} - {level or 'INFO':5} [Peer-{r.randrange(5)}:Quorum@{r.randrange(999)}] - "


def _openstack(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    return f"yard-api.log.1.2021-05-1{number // 900 + 1} 2021-05-1{number // 900 + 1} {hour:02d}:{minute:02d}:{second:02d}.{r.randrange(999):03d} {r.randrange(30000)} {level or 'INFO'} yard.compute.manager [req-{r.getrandbits(32):08x}-{r.randrange(9999):04d} - - -] "


def _bgl(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    label, real = level.split("/") if level else ("-", "INFO")
    node = f"R{r.randrange(99):02d}-M{r.randrange(2)}-N{r.randrange(16)}-C:J{r.randrange(18):02d}-U11"
    day = f"2021.06.{number // 900 + 10}"
    return f"{label} {1_117_838_570 + number} {day} {node} 2021-06-{number // 900 + 10}-{hour:02d}.{minute:02d}.{second:02d}.{r.randrange(999999):06d} {node} RAS KERNEL {real} "


def _hpc(r: random.Random, number: int, level: str) -> str:
    return f"{460_000 + number} node-{r.randrange(256)} unix.hw {level or 'state_change.available'} {1_084_680_778 + number * 13} 1 "


def _thunderbird(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    host = f"an{r.randrange(999)}"
    return f"{level or '-'} {1_131_566_461 + number} 2021.11.0{number // 900 + 1} {host} Nov {number // 900 + 1} {hour:02d}:{minute:02d}:{second:02d} {host}/{host} daemon[{r.randrange(30000)}]: "


def _windows(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    return f"2021-09-2{number // 900 + 1} {hour:02d}:{minute:02d}:{second:02d}, {level or 'Info':<21} {r.choice(('CBS', 'CSI'))}    "


def _syslog(process: str) -> Callable[[random.Random, int, str], str]:
    def header(r: random.Random, number: int, level: str) -> str:
        hour, minute, second = _clock(number)
        return f"Jun {number // 900 + 14} {hour:02d}:{minute:02d}:{second:02d} combo {process}[{r.randrange(30000)}]: "

    return header


def _mac(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    process = r.choice(("kernel[0]", "helperd[314]", "com.yard.sync[120]", "Window (Server)[88]"))
    return f"Jul  {number // 900 + 1} {hour:02d}:{minute:02d}:{second:02d} desk-{r.randrange(9)} {process}: "


def _android(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    tag = r.choice(("WindowKeeper", "PowerMinder", "AlarmShelf", "CardView"))
    return f"03-1{number // 900 + 7} {hour:02d}:{minute:02d}:{second:02d}.{r.randrange(999):03d} {r.randrange(9999):5d} {r.randrange(9999):5d} {level or r.choice('DIV')} {tag}: "


def _health(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    return f"2021122{number // 900 + 3}-{hour}:{minute}:{second}:{r.randrange(999)}|Step_Counter|{30_000_000 + r.randrange(999)}|"


def _apache(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    return f"[Sun Dec 0{number // 900 + 4} {hour:02d}:{minute:02d}:{second:02d} 2021] [{level or 'notice'}] "


def _proxifier(r: random.Random, number: int, level: str) -> str:
    hour, minute, second = _clock(number)
    program = r.choice(("browser.exe", "mailer.exe *64", "chat.exe"))
    return f"[10.{number // 900 + 30} {hour:02d}:{minute:02d}:{second:02d}] {program} - "


_TAILS = (
    "on {host} after {n} ms",
    "for job {id}",
    "at {path}",
    "(code {n})",
    "while talking to {ip}:{n}",
    "in slot {n} of bank {n}",
)
_JAVA_TROUBLES = (
    "failed to open the stream",
    "could not be scheduled",
    "threw java.io.IOException: peer closed",
    "timed out waiting for a lease",
    "reports an unexpected state",
)
_KERNEL = (
    "data TLB error interrupt",
    "instruction address parity error",
    "machine check: critical input",
    "ciod: cannot read message prefix",
    "L3 cache: uncorrectable error detected",
    "torus receiver failed",
    "rts: kernel terminated, panic",
    "memory controller timed out",
)

SYSTEMS = (
    System(
        name="HDFS",
        header=_hdfs,
        good=(
            "Receiving block blk_{n} src: /{ip}:{n} dest: /{ip}:{n}",
            "Block blk_{n} of size {n} stored by {ip}",
            "Verification of blk_{n} succeeded",
            "Deleting block blk_{n} file {path}",
        ),
        bad=_with_level("WARN", ("Got exception while serving blk_{n} to /{ip}:", "Mirror of blk_{n} is unreachable")),
        share=0.04,
    ),
    System(
        name="Hadoop",
        header=_hadoop,
        good=(
            "Progress of attempt_{n}_m_{n} is : {s}",
            "attempt_{n} moved from NEW to RUNNING",
            "Heartbeat {n} of {host}",
        ),
        bad=_with_level("WARN", _mixed(("Shuffle", "Container {id}", "Committer"), _JAVA_TROUBLES, _TAILS, 12))
        + _with_level("ERROR", _mixed(("Channel", "Contact with the manager"), _JAVA_TROUBLES, _TAILS, 8)),
        share=0.4,
    ),
    System(
        name="Spark",
        header=_spark,
        good=(
            "Running task {s} in stage {s} (TID {n})",
            "Found block rdd_{n}_{n} locally",
            "Finished task {s}. {n} bytes",
        ),
        bad=_with_level("WARN", ("Lost executor {n}: heartbeat was missed", "Block rdd_{n} could not be cached")),
        share=0.01,
    ),
    System(
        name="Zookeeper",
        header=_zookeeper,
        good=(
            "Accepted connection from /{ip}:{n}",
            "Established session {hex} for /{ip}:{n}",
            "Notification: {n} (leader)",
        ),
        bad=_with_level("WARN", _mixed(("Channel to {n}", "Stream", "Session {hex}"), _JAVA_TROUBLES, _TAILS, 15))
        + _with_level("ERROR", ("Unexpected end of the election", "Snapshot {hex} is corrupt")),
        share=0.65,
    ),
    System(
        name="OpenStack",
        header=_openstack,
        good=(
            '{ip} "GET /v2/{id}/servers HTTP/1.1" status: 200 len: {n} time: {s}',
            "[instance: {id}] VM Started (Lifecycle)",
        ),
        bad=_with_level("WARNING", ("Unknown base file: {path}", "Instance {id} not found in the database"))
        + _with_level("ERROR", ("Image {id} could not be fetched", "Volume {id} failed to attach on {host}")),
        share=0.03,
    ),
    System(
        name="BGL",
        header=_bgl,
        good=("instruction cache parity corrected", "generating core.{n}", "{n} floating point alignments corrected"),
        bad=_with_level("KERN/FATAL", _mixed(_KERNEL, ("seen", "again", "reported late"), _TAILS, 48))
        + _with_level("APP/FATAL", _mixed(("ciod: login", "ciod: stream"), ("failed:", "was refused:"), _TAILS, 10)),
        share=0.25,
    ),
    System(
        name="HPC",
        header=_hpc,
        good=(
            "Component State Change: Component {hex} is in the available state (HWID={n})",
            "running running",
            "boot (command {n})",
        ),
        bad=_with_level("boot_cmd", ("Error: partition {n} did not come up", "Command has aborted: {n}"))
        + _with_level("psu", ("psu failure on unit {n}", "ambient=warm: critical temperature of {n}"))
        + _with_level("net", ("Link error on broadcast tree Interconnect-{n}", "unable to reach switch {n}")),
        share=0.2,
    ),
    System(
        name="Thunderbird",
        header=_thunderbird,
        good=(
            "session opened for user root by (uid={n})",
            "synchronized to {ip}, stratum {n}",
            "(root) CMD (run-parts {path})",
        ),
        bad=_with_level(
            "-", _mixed(("data_thread()", "bad file {n}:", "rpc {hex}"), ("error:", "failed:", "timed out:"), _TAILS, 9)
        )
        + _with_level("VAPI", _mixed(("Local Catastrophic", "Local Work Queue"), ("Error", "fatal fault"), _TAILS, 4)),
        share=0.15,
    ),
    System(
        name="Windows",
        header=_windows,
        good=(
            "Loaded Servicing Stack v{s} with Core: {path}",
            "Read out cached package applicability for package: KB{n}",
            "Ending worker {n}.",
        ),
        bad=_with_level(
            "Error",
            (
                "Failed to internally open package. [HRESULT = {hex}]",
                "Expecting attribute name [HRESULT = {hex}]: invalid",
            ),
        )
        + _with_level("Warning", ("Unrecognized packageExtended attribute.", "Failed to get next element of row {n}")),
        share=0.05,
    ),
    System(
        name="Linux",
        header=_syslog("sshd(pam_unix)"),
        good=("session closed for user {id}", "connection from {ip} () at Sun Jun {n}", "klogd startup succeeded: {n}"),
        bad=_with_level(
            "",
            (
                "authentication failure; logname= uid={n} euid={n} tty=NODEVssh ruser= rhost={ip}",
                "ALERT exited abnormally with [{n}]",
                "Couldn't open {path}: warning only",
                "Kerberos could not be reached from {ip}",
            ),
        )
        + _with_level(
            "",
            _mixed(
                ("ide{n}:", "ACPI:", "PCI:", "audit({n}):"),
                ("invalid table", "cannot find a bridge", "initialization failed"),
                _TAILS,
                12,
            ),
        ),
        share=0.35,
    ),
    System(
        name="Mac",
        header=_mac,
        good=_mixed(
            ("Wake of", "Link of", "Sync of", "Window of"),
            ("device {n}", "session {id}", "host {host}"),
            ("began", "ended", "went on", "took {s} s"),
            48,
        ),
        bad=_with_level(
            "",
            _mixed(
                (
                    "Bluetooth",
                    "Audio input",
                    "Mail store",
                    "Key chain",
                    "Thermal watch",
                    "Camera helper",
                    "Font cache",
                    "Backup",
                ),
                (
                    "failed to load",
                    "was denied",
                    "timed out",
                    "error opening",
                    "could not resolve",
                    "is missing: not found",
                ),
                _TAILS,
                48,
            ),
        ),
        share=0.3,
    ),
    System(
        name="Android",
        header=_android,
        good=_mixed(
            ("acquire lock", "release lock", "animate card", "set alarm"),
            ("flags={hex}", "tag={id}"),
            ("uid={n}", "pid={n}", "now={s}"),
            24,
        ),
        bad=_with_level(
            "W",
            _mixed(
                ("Skipping", "No focus for", "Slow dispatch of"),
                ("window {hex}", "card {n}", "a view"),
                ("here", "again", "ws={n}"),
                18,
            ),
        )
        + _with_level(
            "E",
            _mixed(
                ("Binder of", "Surface of"), ("client {n}", "task {hex}"), ("is dead", "has gone", "got nothing"), 8
            ),
        ),
        share=0.08,
    ),
    System(
        name="HealthApp",
        header=_health,
        good=(
            "onStandStepChanged {n}",
            "getTodayTotalDetailSteps = {n}##{n}##{n}",
            "onExtend:{n} {n} 0 {n}",
            "setTodayTotalDetailSteps={n}##{n}",
        ),
        bad=_with_level(
            "",
            (
                "saveHealthDetail() deleteHealthDetail error: {n}",
                "processHandleBroadcastAction failed: {n}",
                "upload timeout after {n}",
            ),
        ),
        share=0.01,
    ),
    System(
        name="Apache",
        header=_apache,
        good=("jk2_init() Found child {n} in scoreboard slot {n}", "workerEnv.init() ok {path}"),
        bad=_with_level(
            "error",
            (
                "mod_jk child workerEnv in error state {n}",
                "[client {ip}] Directory index forbidden by rule: {path}",
                "jk2_init() Can't find child {n} in scoreboard",
            ),
        )
        + _with_level("warn", ("child {n} still did not exit, sending a SIGTERM",)),
        share=0.35,
    ),
    System(
        name="Proxifier",
        header=_proxifier,
        good=(
            "proxy.yard:{n} open through proxy relay.yard:{n} HTTPS",
            "proxy.yard:{n} close, {n} bytes sent, {n} bytes received, lifetime {n}",
        ),
        bad=_with_level(
            "",
            (
                "proxy.yard:{n} error : Could not connect through proxy relay.yard:{n} - status code {n}",
                "proxy.yard:{n} error : A connection request was canceled before the completion.",
            ),
        ),
        share=0.05,
    ),
    System(
        name="OpenSSH",
        header=_syslog("sshd"),
        good=(
            "Received disconnect from {ip}: {n}: Bye Bye [preauth]",
            "Connection closed by {ip} [preauth]",
            "pam_unix(sshd:session): session opened by (uid={n})",
        ),
        bad=_with_level(
            "",
            (
                "Failed password for root from {ip} port {n} ssh2",
                "Failed password for invalid user {id} from {ip} port {n} ssh2",
                "Invalid user {id} from {ip}",
                "pam_unix(sshd:auth): authentication failure; uid={n} euid={n} rhost={ip}",
                "reverse mapping checking getaddrinfo for {host} failed - POSSIBLE BREAK-IN ATTEMPT!",
                "error: Received disconnect from {ip}: {n}: com.yard.ssh.Exception: Auth fail",
                "fatal: Write failed: Connection reset by peer [preauth]",
                "message repeated {n} times: [ Failed password for root from {ip} port {n} ssh2]",
            ),
        ),
        share=0.7,
    ),
)
