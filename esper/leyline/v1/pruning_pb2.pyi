from esper.leyline.v1 import enums_pb2 as _enums_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChannelImportance(_message.Message):
    __slots__ = ("parameter", "mask_type", "dim", "gradient_norm", "taylor", "fisher")
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    MASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_NORM_FIELD_NUMBER: _ClassVar[int]
    TAYLOR_FIELD_NUMBER: _ClassVar[int]
    FISHER_FIELD_NUMBER: _ClassVar[int]
    parameter: str
    mask_type: _enums_pb2.PruningMaskType
    dim: int
    gradient_norm: _containers.RepeatedScalarFieldContainer[float]
    taylor: _containers.RepeatedScalarFieldContainer[float]
    fisher: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, parameter: _Optional[str] = ..., mask_type: _Optional[_Union[_enums_pb2.PruningMaskType, str]] = ..., dim: _Optional[int] = ..., gradient_norm: _Optional[_Iterable[float]] = ..., taylor: _Optional[_Iterable[float]] = ..., fisher: _Optional[_Iterable[float]] = ...) -> None: ...

class StructuralPruningRequest(_message.Message):
    __slots__ = ("request_id", "checkpoint_id", "step", "phase", "safety_constraints", "timeout_ms", "importance", "part", "num_parts", "num_steps")
    class SafetyConstraintsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SAFETY_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTS_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    checkpoint_id: str
    step: int
    phase: _enums_pb2.PruningPhase
    safety_constraints: _containers.ScalarMap[str, float]
    timeout_ms: int
    importance: _containers.RepeatedCompositeFieldContainer[ChannelImportance]
    part: int
    num_parts: int
    num_steps: int
    def __init__(self, request_id: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., step: _Optional[int] = ..., phase: _Optional[_Union[_enums_pb2.PruningPhase, str]] = ..., safety_constraints: _Optional[_Mapping[str, float]] = ..., timeout_ms: _Optional[int] = ..., importance: _Optional[_Iterable[_Union[ChannelImportance, _Mapping]]] = ..., part: _Optional[int] = ..., num_parts: _Optional[int] = ..., num_steps: _Optional[int] = ...) -> None: ...

class PruningMask(_message.Message):
    __slots__ = ("parameter", "mask_type", "dim", "kept", "num_channels")
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    MASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    NUM_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    parameter: str
    mask_type: _enums_pb2.PruningMaskType
    dim: int
    kept: bytes
    num_channels: int
    def __init__(self, parameter: _Optional[str] = ..., mask_type: _Optional[_Union[_enums_pb2.PruningMaskType, str]] = ..., dim: _Optional[int] = ..., kept: _Optional[bytes] = ..., num_channels: _Optional[int] = ...) -> None: ...

class StructuralPruningResponse(_message.Message):
    __slots__ = ("request_id", "validation_passed", "pruning_masks", "decision_report", "rollback_required", "rollback_reason", "processing_time_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_PASSED_FIELD_NUMBER: _ClassVar[int]
    PRUNING_MASKS_FIELD_NUMBER: _ClassVar[int]
    DECISION_REPORT_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_REASON_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    validation_passed: bool
    pruning_masks: _containers.RepeatedCompositeFieldContainer[PruningMask]
    decision_report: str
    rollback_required: bool
    rollback_reason: str
    processing_time_ms: float
    def __init__(self, request_id: _Optional[str] = ..., validation_passed: _Optional[bool] = ..., pruning_masks: _Optional[_Iterable[_Union[PruningMask, _Mapping]]] = ..., decision_report: _Optional[str] = ..., rollback_required: _Optional[bool] = ..., rollback_reason: _Optional[str] = ..., processing_time_ms: _Optional[float] = ...) -> None: ...
