from esper.leyline.v1 import enums_pb2 as _enums_pb2
from esper.leyline.v1 import kernels_pb2 as _kernels_pb2
from esper.leyline.v1 import pruning_pb2 as _pruning_pb2
from esper.leyline.v1 import telemetry_pb2 as _telemetry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Heartbeat(_message.Message):
    __slots__ = ("version", "worker", "incarnation", "rank", "world_size", "region", "step", "epoch", "busy", "time_ns", "seeds", "sites", "blueprints", "loss", "packets", "shed", "round_applied", "barrier_due", "report", "hyperparameters", "accuracy", "steps_waited", "pruning", "repeated", "examples", "lease_token", "roster_generation", "round_met")
    class HyperparametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    BLUEPRINTS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    SHED_FIELD_NUMBER: _ClassVar[int]
    ROUND_APPLIED_FIELD_NUMBER: _ClassVar[int]
    BARRIER_DUE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    HYPERPARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    STEPS_WAITED_FIELD_NUMBER: _ClassVar[int]
    PRUNING_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ROSTER_GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_MET_FIELD_NUMBER: _ClassVar[int]
    version: int
    worker: str
    incarnation: int
    rank: int
    world_size: int
    region: str
    step: int
    epoch: int
    busy: _enums_pb2.BusyWith
    time_ns: int
    seeds: _containers.RepeatedCompositeFieldContainer[_telemetry_pb2.SeedState]
    sites: _containers.RepeatedScalarFieldContainer[str]
    blueprints: _containers.RepeatedCompositeFieldContainer[_kernels_pb2.KernelManifest]
    loss: float
    packets: int
    shed: int
    round_applied: int
    barrier_due: bool
    report: WorkerReport
    hyperparameters: _containers.ScalarMap[str, float]
    accuracy: float
    steps_waited: int
    pruning: _pruning_pb2.StructuralPruningRequest
    repeated: bool
    examples: int
    lease_token: int
    roster_generation: int
    round_met: int
    def __init__(self, version: _Optional[int] = ..., worker: _Optional[str] = ..., incarnation: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., region: _Optional[str] = ..., step: _Optional[int] = ..., epoch: _Optional[int] = ..., busy: _Optional[_Union[_enums_pb2.BusyWith, str]] = ..., time_ns: _Optional[int] = ..., seeds: _Optional[_Iterable[_Union[_telemetry_pb2.SeedState, _Mapping]]] = ..., sites: _Optional[_Iterable[str]] = ..., blueprints: _Optional[_Iterable[_Union[_kernels_pb2.KernelManifest, _Mapping]]] = ..., loss: _Optional[float] = ..., packets: _Optional[int] = ..., shed: _Optional[int] = ..., round_applied: _Optional[int] = ..., barrier_due: _Optional[bool] = ..., report: _Optional[_Union[WorkerReport, _Mapping]] = ..., hyperparameters: _Optional[_Mapping[str, float]] = ..., accuracy: _Optional[float] = ..., steps_waited: _Optional[int] = ..., pruning: _Optional[_Union[_pruning_pb2.StructuralPruningRequest, _Mapping]] = ..., repeated: _Optional[bool] = ..., examples: _Optional[int] = ..., lease_token: _Optional[int] = ..., roster_generation: _Optional[int] = ..., round_met: _Optional[int] = ...) -> None: ...

class BarrierProposal(_message.Message):
    __slots__ = ("version", "round", "roster_generation", "roster", "time_ns", "lease_token", "incarnations")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROSTER_GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    version: int
    round: int
    roster_generation: int
    roster: _containers.RepeatedScalarFieldContainer[str]
    time_ns: int
    lease_token: int
    incarnations: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., round: _Optional[int] = ..., roster_generation: _Optional[int] = ..., roster: _Optional[_Iterable[str]] = ..., time_ns: _Optional[int] = ..., lease_token: _Optional[int] = ..., incarnations: _Optional[_Iterable[int]] = ...) -> None: ...

class LeaderAnnouncement(_message.Message):
    __slots__ = ("version", "leader", "lease_token", "time_ns")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    version: int
    leader: str
    lease_token: int
    time_ns: int
    def __init__(self, version: _Optional[int] = ..., leader: _Optional[str] = ..., lease_token: _Optional[int] = ..., time_ns: _Optional[int] = ...) -> None: ...

class SnapshotRef(_message.Message):
    __slots__ = ("step", "digest")
    STEP_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    step: int
    digest: bytes
    def __init__(self, step: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class SeedRequest(_message.Message):
    __slots__ = ("seed_id", "operation", "reason", "detail")
    SEED_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    seed_id: str
    operation: _enums_pb2.SeedOperation
    reason: _enums_pb2.ReasonCode
    detail: str
    def __init__(self, seed_id: _Optional[str] = ..., operation: _Optional[_Union[_enums_pb2.SeedOperation, str]] = ..., reason: _Optional[_Union[_enums_pb2.ReasonCode, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class BarrierVote(_message.Message):
    __slots__ = ("version", "round", "roster_generation", "worker", "step", "epoch", "held", "held_step", "parameter_digest", "seeds", "snapshots", "requests", "optimizers", "own_host", "gradient_digest", "gradient_step", "settled_digest", "settled_round")
    class OptimizersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROSTER_GENERATION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    HELD_STEP_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZERS_FIELD_NUMBER: _ClassVar[int]
    OWN_HOST_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_STEP_FIELD_NUMBER: _ClassVar[int]
    SETTLED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SETTLED_ROUND_FIELD_NUMBER: _ClassVar[int]
    version: int
    round: int
    roster_generation: int
    worker: str
    step: int
    epoch: int
    held: bool
    held_step: int
    parameter_digest: bytes
    seeds: _containers.RepeatedCompositeFieldContainer[_telemetry_pb2.SeedState]
    snapshots: _containers.RepeatedCompositeFieldContainer[SnapshotRef]
    requests: _containers.RepeatedCompositeFieldContainer[SeedRequest]
    optimizers: _containers.ScalarMap[str, int]
    own_host: bool
    gradient_digest: bytes
    gradient_step: int
    settled_digest: bytes
    settled_round: int
    def __init__(self, version: _Optional[int] = ..., round: _Optional[int] = ..., roster_generation: _Optional[int] = ..., worker: _Optional[str] = ..., step: _Optional[int] = ..., epoch: _Optional[int] = ..., held: _Optional[bool] = ..., held_step: _Optional[int] = ..., parameter_digest: _Optional[bytes] = ..., seeds: _Optional[_Iterable[_Union[_telemetry_pb2.SeedState, _Mapping]]] = ..., snapshots: _Optional[_Iterable[_Union[SnapshotRef, _Mapping]]] = ..., requests: _Optional[_Iterable[_Union[SeedRequest, _Mapping]]] = ..., optimizers: _Optional[_Mapping[str, int]] = ..., own_host: _Optional[bool] = ..., gradient_digest: _Optional[bytes] = ..., gradient_step: _Optional[int] = ..., settled_digest: _Optional[bytes] = ..., settled_round: _Optional[int] = ...) -> None: ...

class CommittedCommand(_message.Message):
    __slots__ = ("stream", "entry_id", "command_id", "envelope_digest", "snapshot_step")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_STEP_FIELD_NUMBER: _ClassVar[int]
    stream: str
    entry_id: str
    command_id: str
    envelope_digest: bytes
    snapshot_step: int
    def __init__(self, stream: _Optional[str] = ..., entry_id: _Optional[str] = ..., command_id: _Optional[str] = ..., envelope_digest: _Optional[bytes] = ..., snapshot_step: _Optional[int] = ...) -> None: ...

class BarrierCommit(_message.Message):
    __slots__ = ("version", "round", "roster_generation", "effective_step", "commands", "digest", "commands_position", "optimizer_position", "requests", "snapshot", "deviating", "digests_compared", "latency_ms", "epoch", "lease_token", "deviating_gradients", "quarantined")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROSTER_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_STEP_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_POSITION_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_POSITION_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DEVIATING_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_COMPARED_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DEVIATING_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    version: int
    round: int
    roster_generation: int
    effective_step: int
    commands: _containers.RepeatedCompositeFieldContainer[CommittedCommand]
    digest: bytes
    commands_position: str
    optimizer_position: str
    requests: _containers.RepeatedCompositeFieldContainer[SeedRequest]
    snapshot: bool
    deviating: _containers.RepeatedScalarFieldContainer[str]
    digests_compared: bool
    latency_ms: float
    epoch: int
    lease_token: int
    deviating_gradients: _containers.RepeatedScalarFieldContainer[str]
    quarantined: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., round: _Optional[int] = ..., roster_generation: _Optional[int] = ..., effective_step: _Optional[int] = ..., commands: _Optional[_Iterable[_Union[CommittedCommand, _Mapping]]] = ..., digest: _Optional[bytes] = ..., commands_position: _Optional[str] = ..., optimizer_position: _Optional[str] = ..., requests: _Optional[_Iterable[_Union[SeedRequest, _Mapping]]] = ..., snapshot: _Optional[bool] = ..., deviating: _Optional[_Iterable[str]] = ..., digests_compared: _Optional[bool] = ..., latency_ms: _Optional[float] = ..., epoch: _Optional[int] = ..., lease_token: _Optional[int] = ..., deviating_gradients: _Optional[_Iterable[str]] = ..., quarantined: _Optional[_Iterable[str]] = ...) -> None: ...

class EvictedProcess(_message.Message):
    __slots__ = ("worker", "incarnation", "positions")
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    incarnation: int
    positions: _containers.ScalarMap[str, str]
    def __init__(self, worker: _Optional[str] = ..., incarnation: _Optional[int] = ..., positions: _Optional[_Mapping[str, str]] = ...) -> None: ...

class BarrierAbort(_message.Message):
    __slots__ = ("version", "round", "roster_generation", "reason", "detail", "missing", "lease_token", "evicted")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROSTER_GENERATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    version: int
    round: int
    roster_generation: int
    reason: _enums_pb2.ReasonCode
    detail: str
    missing: _containers.RepeatedScalarFieldContainer[str]
    lease_token: int
    evicted: _containers.RepeatedCompositeFieldContainer[EvictedProcess]
    def __init__(self, version: _Optional[int] = ..., round: _Optional[int] = ..., roster_generation: _Optional[int] = ..., reason: _Optional[_Union[_enums_pb2.ReasonCode, str]] = ..., detail: _Optional[str] = ..., missing: _Optional[_Iterable[str]] = ..., lease_token: _Optional[int] = ..., evicted: _Optional[_Iterable[_Union[EvictedProcess, _Mapping]]] = ...) -> None: ...

class StageRecord(_message.Message):
    __slots__ = ("stage", "step", "gate", "passed", "evidence", "detail")
    class EvidenceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    stage: _enums_pb2.SeedLifecycleStage
    step: int
    gate: _enums_pb2.SeedLifecycleGate
    passed: bool
    evidence: _containers.ScalarMap[str, float]
    detail: str
    def __init__(self, stage: _Optional[_Union[_enums_pb2.SeedLifecycleStage, str]] = ..., step: _Optional[int] = ..., gate: _Optional[_Union[_enums_pb2.SeedLifecycleGate, str]] = ..., passed: _Optional[bool] = ..., evidence: _Optional[_Mapping[str, float]] = ..., detail: _Optional[str] = ...) -> None: ...

class PairedGain(_message.Message):
    __slots__ = ("mean", "low", "high", "examples", "batches")
    MEAN_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    mean: float
    low: float
    high: float
    examples: int
    batches: int
    def __init__(self, mean: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., examples: _Optional[int] = ..., batches: _Optional[int] = ...) -> None: ...

class SeedReport(_message.Message):
    __slots__ = ("seed_id", "site", "blueprint_id", "stage", "history", "paired_gain", "records_dropped", "gates_dropped")
    SEED_ID_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    BLUEPRINT_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    PAIRED_GAIN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    GATES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    seed_id: str
    site: str
    blueprint_id: str
    stage: _enums_pb2.SeedLifecycleStage
    history: _containers.RepeatedCompositeFieldContainer[StageRecord]
    paired_gain: PairedGain
    records_dropped: int
    gates_dropped: int
    def __init__(self, seed_id: _Optional[str] = ..., site: _Optional[str] = ..., blueprint_id: _Optional[str] = ..., stage: _Optional[_Union[_enums_pb2.SeedLifecycleStage, str]] = ..., history: _Optional[_Iterable[_Union[StageRecord, _Mapping]]] = ..., paired_gain: _Optional[_Union[PairedGain, _Mapping]] = ..., records_dropped: _Optional[int] = ..., gates_dropped: _Optional[int] = ...) -> None: ...

class WorkerReport(_message.Message):
    __slots__ = ("worker", "steps", "epochs", "parameter_digest", "seeds", "packets", "shed", "commands_applied", "commands_failed", "notes", "steps_waited", "data", "seeds_forgotten", "part_digest")
    class NotesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    SHED_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_APPLIED_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FAILED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    STEPS_WAITED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    PART_DIGEST_FIELD_NUMBER: _ClassVar[int]
    worker: str
    steps: int
    epochs: int
    parameter_digest: bytes
    seeds: _containers.RepeatedCompositeFieldContainer[SeedReport]
    packets: int
    shed: int
    commands_applied: int
    commands_failed: int
    notes: _containers.ScalarMap[str, float]
    steps_waited: int
    data: str
    seeds_forgotten: int
    part_digest: bytes
    def __init__(self, worker: _Optional[str] = ..., steps: _Optional[int] = ..., epochs: _Optional[int] = ..., parameter_digest: _Optional[bytes] = ..., seeds: _Optional[_Iterable[_Union[SeedReport, _Mapping]]] = ..., packets: _Optional[int] = ..., shed: _Optional[int] = ..., commands_applied: _Optional[int] = ..., commands_failed: _Optional[int] = ..., notes: _Optional[_Mapping[str, float]] = ..., steps_waited: _Optional[int] = ..., data: _Optional[str] = ..., seeds_forgotten: _Optional[int] = ..., part_digest: _Optional[bytes] = ...) -> None: ...
