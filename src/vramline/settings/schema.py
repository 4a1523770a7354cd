"""Every setting: its name, its value's form, its default and the reason for it.

A new setting is a field of `Settings` and a line in `SETTINGS`; docs/settings.md must name it.
"""

import enum
import re
from collections.abc import Callable

import msgspec

from vramline.model.ask import PolicyName, RealtimeMode
from vramline.settings.hami_words import HamiMetrics, HamiNodeLock
from vramline.settings.observation_feeds import as_observations
from vramline.settings.platforms import as_platforms
from vramline.settings.values import (
    Address,
    as_address,
    as_device_names,
    as_history_age,
    as_history_size,
    as_image,
    as_label_key,
    as_label_value,
    as_margin,
    as_namespace,
    as_optional_address,
    as_path,
    as_scheduler_name,
    as_slots,
    as_switch,
    as_verbosity,
    duration,
    duration_between,
    on_or_off,
    one_of,
)
from vramline.units import Mib
from vramline.wire.admission_options import Backend, SchedulerNamePolicy
from vramline.wire.device_names import BY_UUID

__all__ = [
    "ENABLE",
    "MODE",
    "SETTINGS",
    "Adoption",
    "LogFormat",
    "LogLevel",
    "NominateAhead",
    "Origin",
    "Preemption",
    "Setting",
    "Settings",
    "Source",
    "StaleObservation",
    "UnsizedAsk",
]


class StaleObservation(enum.StrEnum):
    """What strict mode does with a card that has no fresh observation."""

    BOOKS = "books"
    """Count by the claims alone, and say so."""
    REFUSE = "refuse"


class Adoption(enum.StrEnum):
    """Which pods of other schedulers hold memory in our books."""

    DEVICES = "devices"
    """Those to which kubelet hands GPU devices."""
    ALL = "all"
    """Also those whose HAMi or KAI annotations name cards: while a cluster moves from one of them."""


class UnsizedAsk(enum.StrEnum):
    """What a plain `nvidia.com/gpu: n` means on a time-sliced card."""

    SHARE = "share"
    WHOLE = "whole"


class Preemption(enum.StrEnum):
    """Whether less important pods are sent away where VRAM alone is short."""

    ON = "on"
    OFF = "off"
    """Only kube-scheduler preempts, for what it counts itself."""


class NominateAhead(enum.StrEnum):
    """Whether kube-scheduler is told ahead which node to try first."""

    AUTO = "auto"
    """Where that pays: many nodes, and many pods that wait."""
    OFF = "off"


class LogLevel(enum.StrEnum):
    """The least important kind of line that is still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.StrEnum):
    """What a log line looks like."""

    AUTO = "auto"
    """console on a terminal, json elsewhere."""
    CONSOLE = "console"
    JSON = "json"


class Source(enum.StrEnum):
    """Who said it; later wins."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an effective value came from."""

    source: Source = Source.DEFAULT
    where: str = ""
    """The key, variable or flag with what it said: `VRAMLINE_MARGIN = 1Gi`; empty for a default."""
    overrides: tuple[str, ...] = ()
    """What weaker sources said, in the same form, strongest last."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Effective values. Immutable; a change of settings is a new start."""

    realtime_mode: RealtimeMode = RealtimeMode.STRICT
    """How observations count. Default strict: a promise that the card cannot keep is worse than a wait."""
    margin: Mib = Mib(100)
    """MiB of every card that are never promised. Default 100: covers what an idle driver keeps unlisted."""
    host_reserve: Mib = Mib(1024)
    """MiB that a machine whose GPU has no memory of its own keeps for itself. Default 1024: kubelet, kernel
    and what they start must live beside the pods."""
    observation_max_age_s: float = 90.0
    """Seconds after which a card's report is stale. Default 90: a late report or two is normal."""
    observation_max_age_stream_s: float = 5.0
    """The same for observations that an agent streams. Default 5: a stream that pauses is broken."""
    look_within_s: float = 0.05
    """Seconds for which a bind waits for an agent's live look. Default 0.05: ten times what a look takes."""
    release_grace_s: float = 60.0
    """Seconds after a pod's end at which its memory counts as free where no observation can prove it.
    Default 60: longer than a driver needs to tear a context down."""
    stale_observation: StaleObservation = StaleObservation.BOOKS
    """What strict mode does without a fresh observation. Default books: a silent agent must not stop a
    cluster; the decision carries a warning."""
    unsized_ask: UnsizedAsk = UnsizedAsk.SHARE
    """What `nvidia.com/gpu: 1` means on a time-sliced card. Default share: (usable − margin) ÷ slots, what
    the replica count promises."""
    adoption: Adoption = Adoption.DEVICES
    """Whose word counts for pods of other schedulers. Default devices: only what kubelet hands out, because
    annotations can be written by anybody who may create a pod."""
    policy: PolicyName = PolicyName.VRAMLINE
    """How feasible nodes are ranked. Default vramline: spoils least for the pods that usually come."""
    preemption: Preemption = Preemption.ON
    """Whether pods are sent away for more important ones that lack nothing but VRAM. Default on: that is what
    a PriorityClass promises; whose class says preemptionPolicy Never is left out anyway."""
    nominate_ahead: NominateAhead = NominateAhead.AUTO
    """Whether waiting pods get a hint which node kube-scheduler should try first. Default auto: it costs a
    write a pod, and pays only where many pods wait and there are many nodes."""
    node_pool_label_key: str = ""
    """Label that a node must carry to get GPU pods. Default empty: all nodes."""
    node_pool_label_value: str = ""
    """The value that label must have. Default empty, as the key."""
    listen: Address = Address("127.0.0.1", 8780)
    """Where HTTP is served. Default loopback: nothing is open to the network unless somebody says so."""
    webhook_listen: Address | None = None
    """Where the admission webhook is served, over TLS. Default nowhere: who runs it in a cluster says so."""
    sample_interval_s: float = 1.0
    """Seconds from one look of an agent at its cards to the next. Default 1: a spike is seen before the next
    pod is placed, for less than a hundredth of a core."""
    report_interval_s: float = 30.0
    """Seconds after which an agent writes its report even where nothing changed. Default 30: three fit into
    the age at which a report is stale."""
    report_threshold: Mib = Mib(64)
    """MiB by which memory in use must have moved for a report before its time. Default 64: less is noise."""
    metrics_listen: Address | None = Address("127.0.0.1", 8781)
    """Where an agent serves /metrics and /healthz. Default loopback, as `listen`."""
    scheduler_metrics_listen: Address | None = None
    """Where a scheduler serves nothing but /metrics, for Prometheus. Default nowhere: `listen` has it too."""
    hami_metrics: HamiMetrics = HamiMetrics.OFF
    """Whether /metrics has HAMi's names beside our own. Default off: twice the series say nothing more."""
    hami_node_lock: HamiNodeLock = HamiNodeLock.OFF
    """Whether HAMi's lock is taken before a pod gets devices from HAMi's plugin. Default off: nodes stay
    out of reach."""
    nvml_library: str = ""
    """NVML library, or its folder, that is used instead of looking for one. Default empty: it is found."""
    observations: str = ""
    """Others that are asked what is on the cards of nodes without an agent. Default empty: nobody."""
    dashboard_listen: Address | None = None
    """Where people see the dashboard, over TLS and with a token. Default nowhere but on loopback."""
    agent_listen: Address | None = None
    """Where agents open their streams, over TLS. Default nowhere: who runs it in a cluster says so."""
    scheduler_name: str = "vramline"
    """What the webhook writes into `spec.schedulerName`. Default vramline, as the chart names the profile."""
    scheduler_name_policy: SchedulerNamePolicy = SchedulerNamePolicy.DEFAULT
    """For which GPU pods it does so. Default default: those that name no scheduler, or the default one."""
    backend: Backend = Backend.RESERVATION
    """Who holds a card from kubelet's point of view. Default reservation: works beside NVIDIA's plugin."""
    reservation_image: str = ""
    """The image of reservation pods, which has `vramline` in it. Default empty: cards are not held."""
    reservation_namespace: str = "vramline-reservations"
    """Where reservation pods are. Default a namespace of their own: their service account may patch there."""
    bind_within_s: float = 40.0
    """Seconds for which a bind waits for kubelet to give a card. Default 40: an image may have to be pulled;
    kube-scheduler waits a little longer."""
    slots_per_card: int = 256
    """Pods that Vramline's own device plugin lets onto a node, for each of its cards. Default 256: more than
    kubelet runs on a node as a rule, so that memory is the limit and never this."""
    history_path: str = ""
    """File that keeps decisions and samples beyond the process. Default empty: in memory, up to 32 MiB."""
    history_max_size: Mib = Mib(256)
    """MiB that the file may take. Default 256: a week of a hundred busy cards, or hours of ten thousand."""
    history_max_age_s: float = 7 * 86_400.0
    """Seconds after which history is dropped. Default a week: last Friday's question is asked on Monday."""
    device_names: str = BY_UUID
    """How containers are told their cards. Default uuid: what NVIDIA's runtime knows outside CDI mode."""
    platforms: str = ""
    """What reservation pods need on a kind of machine, as JSON. Default empty: Tegra's boards alone need more
    than the device, the folder of their libraries."""
    log_level: LogLevel = LogLevel.INFO
    """The least important line that is logged. Default info."""
    log_format: LogFormat = LogFormat.AUTO
    """What a log line looks like. Default auto: people read terminals, machines read files."""
    verbosity: int = 0
    """How much to say, 0 to 10. Default 0; from 4 on debug lines and the traces of decisions are written."""
    origins: dict[str, Origin] = {}
    """Where each value came from, by the setting's name; not listed: it is the default."""

    def origin(self, name: str) -> Origin:
        """Return where the value of the setting called `name` came from."""
        return self.origins.get(name, Origin())


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How one setting is spelled and read."""

    name: str
    """Key in the file; the name in documentation and messages."""
    field: str
    """Attribute of `Settings`."""
    parse: Callable[[object], object]
    accepted: str
    """The accepted forms, for messages."""
    flag: str = ""
    """Only where the flag is not the name in kebab-case."""

    @property
    def variable(self) -> str:
        """Environment variable: `releaseGrace` is VRAMLINE_RELEASE_GRACE."""
        return f"VRAMLINE_{_snake(self.name).upper()}"

    @property
    def option(self) -> str:
        """Command-line flag: `releaseGrace` is --release-grace."""
        return self.flag or f"--{_snake(self.name).replace('_', '-')}"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _words(values: type[enum.StrEnum]) -> str:
    return ", ".join(values)


_LONG = "a duration up to a day: 90s, 2m, 1h, 500ms, or a number of seconds"

MODE = Setting(
    name="realtimeMode",
    field="realtime_mode",
    parse=one_of(RealtimeMode),
    accepted=_words(RealtimeMode),
    flag="--realtime",
)

ENABLE = Setting(name="enableRealtimeCheck", field="realtime_mode", parse=as_switch, accepted="true, false")
"""A switch on top of the mode, not a value of its own: see `model.rules.mode_when_enabled`."""

SETTINGS: tuple[Setting, ...] = (
    MODE,
    ENABLE,
    Setting(
        name="margin",
        field="margin",
        parse=as_margin,
        accepted="MiB as a whole number, or 100Mi, 1Gi; 0 for none",
    ),
    Setting(
        name="hostReserve",
        field="host_reserve",
        parse=as_margin,
        accepted="MiB as a whole number, or 512Mi, 2Gi; 0 for none",
    ),
    Setting(
        name="observationMaxAge",
        field="observation_max_age_s",
        parse=duration(may_be_zero=False),
        accepted=_LONG,
    ),
    Setting(
        name="observationMaxAgeStream",
        field="observation_max_age_stream_s",
        parse=duration(may_be_zero=False),
        accepted=_LONG,
    ),
    Setting(
        name="lookWithin",
        field="look_within_s",
        parse=duration_between(0.001, 10.0),
        accepted="a duration from 1ms to 10s",
    ),
    Setting(name="releaseGrace", field="release_grace_s", parse=duration(may_be_zero=True), accepted=_LONG),
    Setting(
        name="staleObservation",
        field="stale_observation",
        parse=one_of(StaleObservation),
        accepted=_words(StaleObservation),
    ),
    Setting(name="unsizedAsk", field="unsized_ask", parse=one_of(UnsizedAsk), accepted=_words(UnsizedAsk)),
    Setting(name="adoption", field="adoption", parse=one_of(Adoption), accepted=_words(Adoption)),
    Setting(name="policy", field="policy", parse=one_of(PolicyName), accepted=_words(PolicyName)),
    Setting(name="preemption", field="preemption", parse=on_or_off(Preemption), accepted=_words(Preemption)),
    Setting(
        name="nominateAhead",
        field="nominate_ahead",
        parse=on_or_off(NominateAhead),
        accepted=_words(NominateAhead),
    ),
    Setting(
        name="nodePoolLabelKey",
        field="node_pool_label_key",
        parse=as_label_key,
        accepted="a label key such as example.com/pool, or empty for all nodes",
    ),
    Setting(
        name="nodePoolLabelValue",
        field="node_pool_label_value",
        parse=as_label_value,
        accepted="a label value of at most 63 characters, or empty for all nodes",
    ),
    Setting(name="listen", field="listen", parse=as_address, accepted="host:port, such as 127.0.0.1:8780"),
    Setting(
        name="webhookListen",
        field="webhook_listen",
        parse=as_optional_address,
        accepted="an IP address and a port, such as 0.0.0.0:8443, or empty for no webhook",
    ),
    Setting(
        name="sampleInterval",
        field="sample_interval_s",
        parse=duration_between(0.1, 60.0),
        accepted="a duration from 100ms to 1m",
        flag="--interval",
    ),
    Setting(
        name="reportInterval",
        field="report_interval_s",
        parse=duration_between(1.0, 600.0),
        accepted="a duration from 1s to 10m",
    ),
    Setting(
        name="reportThreshold",
        field="report_threshold",
        parse=as_margin,
        accepted="MiB as a whole number, or 64Mi, 1Gi; 0 for every change",
    ),
    Setting(
        name="metricsListen",
        field="metrics_listen",
        parse=as_optional_address,
        accepted="an IP address and a port, such as 0.0.0.0:8781, or empty for nowhere",
    ),
    Setting(
        name="schedulerMetricsListen",
        field="scheduler_metrics_listen",
        parse=as_optional_address,
        accepted="an IP address and a port, such as 0.0.0.0:8782, or empty for nowhere",
    ),
    Setting(
        name="hamiMetrics", field="hami_metrics", parse=on_or_off(HamiMetrics), accepted=_words(HamiMetrics)
    ),
    Setting(
        name="hamiNodeLock",
        field="hami_node_lock",
        parse=on_or_off(HamiNodeLock),
        accepted=_words(HamiNodeLock),
    ),
    Setting(
        name="nvmlLibrary",
        field="nvml_library",
        parse=as_path,
        accepted="an absolute path to libnvidia-ml.so.1 or its folder, or empty to look for it",
        flag="--library",
    ),
    Setting(
        name="observations",
        field="observations",
        parse=as_observations,
        accepted="prometheus=URL, dcgm=URL, hami=URL, separated by commas; {node} is each node's name",
    ),
    Setting(
        name="dashboardListen",
        field="dashboard_listen",
        parse=as_optional_address,
        accepted="an IP address and a port, such as 0.0.0.0:8445, or empty for nowhere",
    ),
    Setting(
        name="agentListen",
        field="agent_listen",
        parse=as_optional_address,
        accepted="an IP address and a port, such as 0.0.0.0:8444, or empty for no streams",
    ),
    Setting(
        name="schedulerName",
        field="scheduler_name",
        parse=as_scheduler_name,
        accepted="a name such as vramline, the one of kube-scheduler's profile that asks Vramline",
    ),
    Setting(
        name="schedulerNamePolicy",
        field="scheduler_name_policy",
        parse=one_of(SchedulerNamePolicy),
        accepted=_words(SchedulerNamePolicy),
    ),
    Setting(name="backend", field="backend", parse=one_of(Backend), accepted=_words(Backend)),
    Setting(
        name="reservationImage",
        field="reservation_image",
        parse=as_image,
        accepted="an image reference such as vramline:0.1.0, or empty for no reservation pods",
    ),
    Setting(
        name="reservationNamespace",
        field="reservation_namespace",
        parse=as_namespace,
        accepted="the name of a namespace, such as vramline-reservations",
    ),
    Setting(
        name="bindWithin",
        field="bind_within_s",
        parse=duration_between(1.0, 600.0),
        accepted="a duration from 1s to 10m",
    ),
    Setting(name="slotsPerCard", field="slots_per_card", parse=as_slots, accepted="1 to 1000"),
    Setting(
        name="historyPath",
        field="history_path",
        parse=as_path,
        accepted="an absolute path such as /var/lib/vramline/history.db, or empty for in memory",
    ),
    Setting(
        name="historyMaxSize",
        field="history_max_size",
        parse=as_history_size,
        accepted="MiB as a whole number, or 256Mi, 2Gi; from 1Mi to 64Gi",
    ),
    Setting(
        name="historyMaxAge",
        field="history_max_age_s",
        parse=as_history_age,
        accepted="a duration from 1m to 366d, such as 36h or 7d",
    ),
    Setting(
        name="deviceNames",
        field="device_names",
        parse=as_device_names,
        accepted="uuid, or a CDI kind such as k8s.device-plugin.nvidia.com/gpu",
    ),
    Setting(
        name="platforms",
        field="platforms",
        parse=as_platforms,
        accepted="by platform libraries, environment, runtimeClass, devices, groups, annotations, privileged",
    ),
    Setting(name="logLevel", field="log_level", parse=one_of(LogLevel), accepted=_words(LogLevel)),
    Setting(name="logFormat", field="log_format", parse=one_of(LogFormat), accepted=_words(LogFormat)),
    Setting(
        name="verbosity",
        field="verbosity",
        parse=as_verbosity,
        accepted="0 to 10, where 4 traces decisions",
        flag="--v",
    ),
)
