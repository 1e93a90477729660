from esper.leyline.v1 import enums_pb2 as _enums_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BlueprintParameter(_message.Message):
    __slots__ = ("name", "default_value", "minimum", "maximum", "integer")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_VALUE_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    name: str
    default_value: float
    minimum: float
    maximum: float
    integer: bool
    def __init__(self, name: _Optional[str] = ..., default_value: _Optional[float] = ..., minimum: _Optional[float] = ..., maximum: _Optional[float] = ..., integer: _Optional[bool] = ...) -> None: ...

class KernelManifest(_message.Message):
    __slots__ = ("version", "blueprint_id", "digest", "tier", "parameters", "size_bytes", "signature", "schema_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BLUEPRINT_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    blueprint_id: str
    digest: str
    tier: _enums_pb2.BlueprintTier
    parameters: _containers.RepeatedCompositeFieldContainer[BlueprintParameter]
    size_bytes: int
    signature: bytes
    schema_version: int
    def __init__(self, version: _Optional[int] = ..., blueprint_id: _Optional[str] = ..., digest: _Optional[str] = ..., tier: _Optional[_Union[_enums_pb2.BlueprintTier, str]] = ..., parameters: _Optional[_Iterable[_Union[BlueprintParameter, _Mapping]]] = ..., size_bytes: _Optional[int] = ..., signature: _Optional[bytes] = ..., schema_version: _Optional[int] = ...) -> None: ...

class KernelPrefetchRequest(_message.Message):
    __slots__ = ("version", "request_id", "blueprint_id", "digest")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BLUEPRINT_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    version: int
    request_id: str
    blueprint_id: str
    digest: str
    def __init__(self, version: _Optional[int] = ..., request_id: _Optional[str] = ..., blueprint_id: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class KernelArtifactReady(_message.Message):
    __slots__ = ("version", "request_id", "blueprint_id", "artifact_ref", "checksum", "prewarm_p50_ms", "prewarm_p95_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BLUEPRINT_ID_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_REF_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    PREWARM_P50_MS_FIELD_NUMBER: _ClassVar[int]
    PREWARM_P95_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    request_id: str
    blueprint_id: str
    artifact_ref: str
    checksum: str
    prewarm_p50_ms: float
    prewarm_p95_ms: float
    def __init__(self, version: _Optional[int] = ..., request_id: _Optional[str] = ..., blueprint_id: _Optional[str] = ..., artifact_ref: _Optional[str] = ..., checksum: _Optional[str] = ..., prewarm_p50_ms: _Optional[float] = ..., prewarm_p95_ms: _Optional[float] = ...) -> None: ...

class KernelArtifactError(_message.Message):
    __slots__ = ("version", "request_id", "blueprint_id", "reason")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BLUEPRINT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    version: int
    request_id: str
    blueprint_id: str
    reason: str
    def __init__(self, version: _Optional[int] = ..., request_id: _Optional[str] = ..., blueprint_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class KernelCatalogUpdate(_message.Message):
    __slots__ = ("version", "added", "withdrawn")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    version: int
    added: _containers.RepeatedCompositeFieldContainer[KernelManifest]
    withdrawn: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., added: _Optional[_Iterable[_Union[KernelManifest, _Mapping]]] = ..., withdrawn: _Optional[_Iterable[str]] = ...) -> None: ...
