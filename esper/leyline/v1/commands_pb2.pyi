from esper.leyline.v1 import enums_pb2 as _enums_pb2
from esper.leyline.v1 import pruning_pb2 as _pruning_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AdaptationCommand(_message.Message):
    __slots__ = ("version", "command_id", "command_type", "priority", "timeout_ms", "issued_by", "seed_command", "optimizer_adjustment", "circuit_breaker", "rollback_command", "pause_command", "emergency_command", "structural_pruning", "pruning_masks", "annotations")
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ISSUED_BY_FIELD_NUMBER: _ClassVar[int]
    SEED_COMMAND_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_ADJUSTMENT_FIELD_NUMBER: _ClassVar[int]
    CIRCUIT_BREAKER_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_COMMAND_FIELD_NUMBER: _ClassVar[int]
    PAUSE_COMMAND_FIELD_NUMBER: _ClassVar[int]
    EMERGENCY_COMMAND_FIELD_NUMBER: _ClassVar[int]
    STRUCTURAL_PRUNING_FIELD_NUMBER: _ClassVar[int]
    PRUNING_MASKS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    version: int
    command_id: str
    command_type: _enums_pb2.CommandType
    priority: _enums_pb2.MessagePriority
    timeout_ms: int
    issued_by: str
    seed_command: SeedCommand
    optimizer_adjustment: OptimizerAdjustment
    circuit_breaker: CircuitBreakerCommand
    rollback_command: RollbackCommand
    pause_command: PauseCommand
    emergency_command: EmergencyCommand
    structural_pruning: _pruning_pb2.StructuralPruningRequest
    pruning_masks: _pruning_pb2.StructuralPruningResponse
    annotations: _containers.ScalarMap[str, str]
    def __init__(self, version: _Optional[int] = ..., command_id: _Optional[str] = ..., command_type: _Optional[_Union[_enums_pb2.CommandType, str]] = ..., priority: _Optional[_Union[_enums_pb2.MessagePriority, str]] = ..., timeout_ms: _Optional[int] = ..., issued_by: _Optional[str] = ..., seed_command: _Optional[_Union[SeedCommand, _Mapping]] = ..., optimizer_adjustment: _Optional[_Union[OptimizerAdjustment, _Mapping]] = ..., circuit_breaker: _Optional[_Union[CircuitBreakerCommand, _Mapping]] = ..., rollback_command: _Optional[_Union[RollbackCommand, _Mapping]] = ..., pause_command: _Optional[_Union[PauseCommand, _Mapping]] = ..., emergency_command: _Optional[_Union[EmergencyCommand, _Mapping]] = ..., structural_pruning: _Optional[_Union[_pruning_pb2.StructuralPruningRequest, _Mapping]] = ..., pruning_masks: _Optional[_Union[_pruning_pb2.StructuralPruningResponse, _Mapping]] = ..., annotations: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SeedCommand(_message.Message):
    __slots__ = ("seed_id", "operation", "site", "blueprint_id", "parameters", "alpha_curve")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SEED_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    BLUEPRINT_ID_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ALPHA_CURVE_FIELD_NUMBER: _ClassVar[int]
    seed_id: str
    operation: _enums_pb2.SeedOperation
    site: str
    blueprint_id: str
    parameters: _containers.ScalarMap[str, float]
    alpha_curve: _enums_pb2.AlphaCurve
    def __init__(self, seed_id: _Optional[str] = ..., operation: _Optional[_Union[_enums_pb2.SeedOperation, str]] = ..., site: _Optional[str] = ..., blueprint_id: _Optional[str] = ..., parameters: _Optional[_Mapping[str, float]] = ..., alpha_curve: _Optional[_Union[_enums_pb2.AlphaCurve, str]] = ...) -> None: ...

class OptimizerAdjustment(_message.Message):
    __slots__ = ("optimizer_id", "hyperparameters", "release")
    class HyperparametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    OPTIMIZER_ID_FIELD_NUMBER: _ClassVar[int]
    HYPERPARAMETERS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    optimizer_id: str
    hyperparameters: _containers.ScalarMap[str, float]
    release: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, optimizer_id: _Optional[str] = ..., hyperparameters: _Optional[_Mapping[str, float]] = ..., release: _Optional[_Iterable[str]] = ...) -> None: ...

class CircuitBreakerCommand(_message.Message):
    __slots__ = ("seed_id", "desired_state", "rationale")
    SEED_ID_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STATE_FIELD_NUMBER: _ClassVar[int]
    RATIONALE_FIELD_NUMBER: _ClassVar[int]
    seed_id: str
    desired_state: _enums_pb2.CircuitBreakerState
    rationale: str
    def __init__(self, seed_id: _Optional[str] = ..., desired_state: _Optional[_Union[_enums_pb2.CircuitBreakerState, str]] = ..., rationale: _Optional[str] = ...) -> None: ...

class RollbackCommand(_message.Message):
    __slots__ = ("target_step", "emergency", "reason")
    TARGET_STEP_FIELD_NUMBER: _ClassVar[int]
    EMERGENCY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    target_step: int
    emergency: bool
    reason: str
    def __init__(self, target_step: _Optional[int] = ..., emergency: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class PauseCommand(_message.Message):
    __slots__ = ("resume", "seed_id")
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SEED_ID_FIELD_NUMBER: _ClassVar[int]
    resume: bool
    seed_id: str
    def __init__(self, resume: _Optional[bool] = ..., seed_id: _Optional[str] = ...) -> None: ...

class EmergencyCommand(_message.Message):
    __slots__ = ("level", "reason")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    level: _enums_pb2.EmergencyLevel
    reason: str
    def __init__(self, level: _Optional[_Union[_enums_pb2.EmergencyLevel, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class OptimizerCommand(_message.Message):
    __slots__ = ("version", "command_id", "command_type", "optimizer_id", "hyperparameters", "expected_step", "num_steps", "optimizer_generation", "grad_clip_norm", "teacher_digest")
    class HyperparametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_TYPE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_ID_FIELD_NUMBER: _ClassVar[int]
    HYPERPARAMETERS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_STEP_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_GENERATION_FIELD_NUMBER: _ClassVar[int]
    GRAD_CLIP_NORM_FIELD_NUMBER: _ClassVar[int]
    TEACHER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    version: int
    command_id: str
    command_type: _enums_pb2.OptimizerCommandType
    optimizer_id: str
    hyperparameters: _containers.ScalarMap[str, float]
    expected_step: int
    num_steps: int
    optimizer_generation: int
    grad_clip_norm: float
    teacher_digest: str
    def __init__(self, version: _Optional[int] = ..., command_id: _Optional[str] = ..., command_type: _Optional[_Union[_enums_pb2.OptimizerCommandType, str]] = ..., optimizer_id: _Optional[str] = ..., hyperparameters: _Optional[_Mapping[str, float]] = ..., expected_step: _Optional[int] = ..., num_steps: _Optional[int] = ..., optimizer_generation: _Optional[int] = ..., grad_clip_norm: _Optional[float] = ..., teacher_digest: _Optional[str] = ...) -> None: ...

class CommandReceipt(_message.Message):
    __slots__ = ("version", "command_id", "status", "reason", "worker", "step", "round", "detail", "entry_id", "stage", "gate", "evidence", "time_ns", "world_size")
    class EvidenceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    version: int
    command_id: str
    status: _enums_pb2.ReceiptStatus
    reason: _enums_pb2.ReasonCode
    worker: str
    step: int
    round: int
    detail: str
    entry_id: str
    stage: _enums_pb2.SeedLifecycleStage
    gate: _enums_pb2.SeedLifecycleGate
    evidence: _containers.ScalarMap[str, float]
    time_ns: int
    world_size: int
    def __init__(self, version: _Optional[int] = ..., command_id: _Optional[str] = ..., status: _Optional[_Union[_enums_pb2.ReceiptStatus, str]] = ..., reason: _Optional[_Union[_enums_pb2.ReasonCode, str]] = ..., worker: _Optional[str] = ..., step: _Optional[int] = ..., round: _Optional[int] = ..., detail: _Optional[str] = ..., entry_id: _Optional[str] = ..., stage: _Optional[_Union[_enums_pb2.SeedLifecycleStage, str]] = ..., gate: _Optional[_Union[_enums_pb2.SeedLifecycleGate, str]] = ..., evidence: _Optional[_Mapping[str, float]] = ..., time_ns: _Optional[int] = ..., world_size: _Optional[int] = ...) -> None: ...
