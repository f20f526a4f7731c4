"""Read NCCL's topology XML into typed values, and write it.

For safety the reader refuses document types, entities and external references, and limits size,
depth and number of elements.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, field, fields, replace
from functools import cache, partial
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from netsim.base.errors import ScenarioError, nearest, shown
from netsim.base.values import dataclass

if TYPE_CHECKING:
    from xml.sax.xmlreader import AttributesImpl, Locator

LARGEST_FILE = 32 * 2**20
LARGEST_ATTRIBUTE = 4096
MOST_ELEMENTS = 200_000
DEEPEST = 32


@dataclass(frozen=True)
class Element:
    """An XML element: name, attributes, position in the source, and children in order."""

    name: str
    attributes: dict[str, str]
    source: str
    line: int
    column: int
    children: list["Element"] = field(default_factory=list)

    def walk(self) -> Iterator["Element"]:
        """Yield the element and all below it, in the order of the file."""
        stack = [self]
        while stack:
            element = stack.pop()
            yield element
            stack.extend(reversed(element.children))

    def error(self, message: str, attribute: str = "", hint: str = "") -> ScenarioError:
        """Return (not raise) an error at the position of this element, or of one of its
        attributes.
        """
        place = f"{self.name}.{attribute}" if attribute else self.name
        return ScenarioError(
            message, source=self.source, line=self.line, column=self.column, field=place, hint=hint
        )


def parse_elements(data: bytes, source: str) -> Element:
    """Return the root element of an XML document; every fault raises a ScenarioError with its
    position.
    """
    if len(data) > LARGEST_FILE:
        raise ScenarioError(f"larger than {LARGEST_FILE >> 20} MiB", source=source)
    # Imported here, as the import is slow and most runs read no XML.
    from xml.sax import SAXParseException

    from defusedxml import DefusedXmlException
    from defusedxml.sax import make_parser

    tree = _Tree(source)
    parser = make_parser()
    parser.forbid_dtd = True
    parser.setContentHandler(tree)
    try:
        parser.parse(BytesIO(data))
    except SAXParseException as error:
        line = error.getLineNumber() or 1
        column = (error.getColumnNumber() or 0) + 1
        message = f"not XML: {error.getMessage()}"
        raise ScenarioError(message, source=source, line=line, column=column) from None
    except DefusedXmlException:
        message = "a document type, entity or external reference is not allowed"
        raise ScenarioError(message, source=source, line=tree.line) from None
    except (UnicodeError, LookupError, ValueError) as error:
        raise ScenarioError(f"not XML: {error}", source=source, line=tree.line) from None
    return tree.root[0]


def _ignore(*_: object) -> None:
    """Ignore an event of the XML parser."""


def _quoted(text: str) -> str:
    from xml.sax.saxutils import quoteattr

    return quoteattr(text)


class _Tree:
    """Builds the elements while the parser reads; raises an error when a limit is exceeded."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: list[Element] = []
        self.open: list[Element] = []
        self.count = 0
        self.place: Locator | None = None

    @property
    def line(self) -> int:
        number = self.place.getLineNumber() if self.place else None
        return number or 1

    def setDocumentLocator(self, locator: "Locator") -> None:
        self.place = locator

    def startElement(self, name: str, attrs: "AttributesImpl") -> None:
        column = (self.place.getColumnNumber() or 0) + 1 if self.place else 1
        element = Element(name, dict(attrs.items()), self.source, self.line, column)
        self.count += 1
        self._check(element)
        siblings = self.open[-1].children if self.open else self.root
        siblings.append(element)
        self.open.append(element)

    def endElement(self, name: str) -> None:
        self.open.pop()

    def __getattr__(self, name: str) -> "Callable[..., None]":
        if name.startswith("_"):
            raise AttributeError(name)
        return _ignore

    def _check(self, element: Element) -> None:
        if self.count > MOST_ELEMENTS:
            raise element.error(f"more than {MOST_ELEMENTS} elements")
        if len(self.open) >= DEEPEST:
            raise element.error(f"nested deeper than {DEEPEST} elements")
        for name, text in element.attributes.items():
            if len(text) > LARGEST_ATTRIBUTE:
                raise element.error(f"longer than {LARGEST_ATTRIBUTE} characters", name)


# Attributes of one XML element as typed values; errors state the position. `check_names` refuses
# names that look like typing mistakes; other unknown names are accepted, as newer NCCL releases add
# attributes that do not matter here.

HEXADECIMAL = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}", re.ASCII)
INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def check_names(element: Element, attributes: Collection[str], children: Collection[str]) -> None:
    """Refuse attributes and children whose names are almost, but not exactly, expected ones."""
    for name in element.attributes:
        close = None if name in attributes else nearest(name, attributes)
        if close is not None and close not in element.attributes:
            raise element.error("unknown attribute", name, f"did you mean {close}?")
    for child in element.children:
        close = None if child.name in children else nearest(child.name, children)
        if close is not None:
            raise child.error(f"unknown element in {element.name}", hint=f"did you mean {close}?")


def text(element: Element, name: str, default: str | None = None) -> str:
    """Return the attribute as text; without a default it is required."""
    value = element.attributes.get(name, default)
    if value is None:
        raise element.error("missing attribute", name)
    return value


def integer(
    element: Element, name: str, default: int | None = None, *, least: int = 0, most: int = 2**31
) -> int:
    """Return the attribute as a whole number from `least` to `most`; without a default it is
    required.
    """
    value = element.attributes.get(name)
    if value is None and default is not None:
        return default
    written = text(element, name)
    number = int(written) if INTEGER.fullmatch(written.strip()) else None
    if number is None or not least <= number <= most:
        expected = f"expected a whole number from {least} to {most}"
        raise element.error(f"{expected}, got {shown(written)}", name)
    return number


def optional_integer(element: Element, name: str, default: int | None = None) -> int | None:
    """Return the attribute as a whole number, or the default if it is missing."""
    return integer(element, name) if name in element.attributes else default


def real(element: Element, name: str, default: float) -> float:
    """Return the attribute as a finite number of at least 0, or the default if it is missing."""
    written = element.attributes.get(name)
    if written is None:
        return default
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise element.error(f"expected a number of at least 0, got {shown(written)}", name)
    return number


def flag(element: Element, name: str, default: int = 0) -> bool:
    """Return the attribute, 0 or 1, as a boolean."""
    return bool(integer(element, name, int(default), most=1))


def matching(
    element: Element, name: str, default: str | None = None, *, like: re.Pattern[str], expected: str
) -> str:
    """Return the attribute as text that matches the pattern `like`; `expected` describes the
    pattern in messages.
    """
    written = text(element, name, default)
    if written != default and not like.fullmatch(written):
        raise element.error(f"expected {expected}, got {shown(written)}", name)
    return written


hexadecimal = partial(matching, like=HEXADECIMAL, expected="a hexadecimal number")
BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2,4}:[0-9a-fA-F]{2}\.[0-9a-fA-F]", re.ASCII)
TARGET = re.compile(
    r"[0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,4}:[0-9a-fA-F]{1,2}(?:\.[0-9a-fA-F])?", re.ASCII
)
SPEED = re.compile(r"(?:\d{1,3}(?:\.\d{1,2})? GT/s(?: PCIe)?|Unknown(?: speed)?)?", re.ASCII)
ARCHITECTURES = ("x86_64", "arm64", "ppc64")


def _architecture(element: Element, name: str, default: str) -> str:
    arch = text(element, name, default)
    if arch not in ARCHITECTURES:
        expected = f"expected one of {', '.join(ARCHITECTURES)}"
        raise element.error(f"{expected}, got {shown(arch)}", name)
    return arch


OLD_NAMES = {"910": "gfx90a"}  # otherwise the name without gfx (RCCL, src/misc/archinfo.cc)


def _gcn(element: Element, name: str, default: str) -> str:
    """Return the architecture of an AMD GPU in the form gfx942; older RCCL writes 942, and 910 for
    gfx90a.
    """
    written = text(element, name, default).split(":")[0]
    if written in OLD_NAMES:
        return OLD_NAMES[written]
    return f"gfx{written}" if written.isalnum() and written[:1].isdigit() else written


def _rank(element: Element, name: str, default: None) -> int | None:
    rank = integer(element, name, -1, least=-1)
    return default if rank == -1 else rank


# The elements of NCCL's topology XML as classes. The annotation of a field says how its attribute
# is read, or which child elements it holds. Units are those of the file: link speeds as text, NIC
# speeds in Mb/s, latencies in µs, C2C in MB/s.

Text = Annotated[str, text]
Id = Annotated[str, hexadecimal]
Count = Annotated[int, integer]
Flag = Annotated[bool, flag]
Optional = Annotated[int | None, optional_integer]
Several = Annotated[int, partial(integer, least=1, most=1024)]
Speed = Annotated[str, partial(matching, like=SPEED, expected="a speed such as '16.0 GT/s PCIe'")]
Bus = Annotated[str, partial(matching, like=BUS_ID, expected="a bus id such as 0000:07:00.0")]


@dataclass(frozen=True)
class XmlNvLink:
    """`count` NVLinks from a GPU to a target: another GPU, the CPU or a switch, as the PCI class
    `tclass` of the target says.

    RCCL's files have `xgmi` elements instead.
    """

    target: Annotated[str, partial(matching, like=TARGET, expected="a bus id")]
    count: Several
    tclass: Annotated[str, partial(hexadecimal, default="0x0")]
    xgmi: bool = False


@dataclass(frozen=True)
class XmlC2c:
    """`count` chip-to-chip links of a GPU to its CPU, each of `bandwidth` MB/s."""

    bandwidth: Annotated[int, partial(integer, least=1)]
    count: Several


@dataclass(frozen=True)
class XmlPciLink:
    """A link from the PCIe switch that has this element to another switch outside of its tree."""

    target: Bus


@dataclass(frozen=True)
class XmlGpu:
    """A GPU: CUDA device, compute capability (90 for 9.0), rank, and its links.

    `gcn` is the architecture of AMD's GPUs, such as gfx942. In RCCL's files `sm` is the number of
    compute units, and `arch` HIP's feature flags as a number.
    """

    dev: Count
    sm: Annotated[int, partial(integer, least=10, most=999)]
    rank: Annotated[int | None, _rank] = None
    gdr: Flag = False
    mlopart: Optional = None
    nvlinks: Annotated[tuple[XmlNvLink, ...], "nvlink", "xgmi"] = ()
    c2c: Annotated[tuple[XmlC2c, ...], "c2c"] = ()
    gcn: Annotated[str, _gcn] = ""
    arch: Optional = None


@dataclass(frozen=True)
class XmlNet:
    """A network port as its NCCL plugin presents it: `speed` in Mb/s, `latency` in µs."""

    name: Annotated[str, partial(text, default="")]
    dev: Count
    speed: Annotated[int, partial(integer, least=-1)] = 0
    latency: Annotated[float, real] = 0.0
    port: Count = 0
    guid: Id = "0x0"
    maxconn: Count = 0
    gdr: Flag = False
    coll: Flag = False
    net: Flag = True
    gin: Optional = None
    rma: Optional = None
    rail: Optional = None
    plane: Optional = None


@dataclass(frozen=True)
class XmlNic:
    """A network card with its ports."""

    nets: Annotated[tuple[XmlNet, ...], "net"] = ()


@dataclass(frozen=True)
class XmlPci:
    """A PCI device or bridge and the devices below it; ids and class are hexadecimal text."""

    busid: Bus
    class_code: Id = ""
    vendor: Id = ""
    device: Id = ""
    subsystem_vendor: Id = ""
    subsystem_device: Id = ""
    link_speed: Speed = ""
    link_width: Annotated[int, partial(integer, most=64)] = 0
    gpu: Annotated[XmlGpu | None, "gpu"] = None
    nics: Annotated[tuple[XmlNic, ...], "nic"] = ()
    pcis: Annotated[tuple["XmlPci", ...], "pci"] = ()
    pci_links: Annotated[tuple[XmlPciLink, ...], "pcilink"] = ()


@dataclass(frozen=True)
class XmlCpu:
    """A NUMA domain; CPUs with the same `host_hash` are in one host."""

    numaid: Annotated[int, partial(integer, least=-1)]
    host_hash: Id = "0x0"
    affinity: Text = ""
    arch: Annotated[str, _architecture] = "x86_64"
    vendor: Text = ""
    familyid: Count = 0
    modelid: Count = 0
    pcis: Annotated[tuple[XmlPci, ...], "pci"] = ()
    nics: Annotated[tuple[XmlNic, ...], "nic"] = ()


@dataclass(frozen=True)
class XmlSystem:
    """The root element: one node as NCCL sees it, that is, one host or all hosts of an NVLink
    domain.

    `version` is that of the file: 1 for NCCL, 2 for RCCL.
    """

    cpus: tuple[XmlCpu, ...]
    name: str = ""
    version: int = 1

    def pcis(self) -> Iterator[XmlPci]:
        """Every PCI device and bridge, in the order of the file."""
        for cpu in self.cpus:
            stack = list(reversed(cpu.pcis))
            while stack:
                pci = stack.pop()
                yield pci
                stack.extend(reversed(pci.pcis))

    def changed(self, change: Callable[[XmlPci], XmlPci]) -> "XmlSystem":
        """Return the system with every PCIe device replaced by `change(device)`; what is below a
        device stays.
        """

        def made(pci: XmlPci) -> XmlPci:
            return replace(change(pci), pcis=tuple(made(below) for below in pci.pcis))

        cpus = (replace(cpu, pcis=tuple(made(pci) for pci in cpu.pcis)) for cpu in self.cpus)
        return replace(self, cpus=tuple(cpus))

    def with_ports(self, change: Callable[[XmlNet], XmlNet | None]) -> "XmlSystem":
        """Return the system with each network port below PCI replaced by `change(port)`; a port for
        which this is None is removed.
        """

        def made(pci: XmlPci) -> XmlPci:
            ports = (tuple(filter(None, map(change, nic.nets))) for nic in pci.nics)
            return replace(pci, nics=tuple(XmlNic(nets) for nets in ports if nets))

        return self.changed(made)

    def gpus(self) -> Iterator[XmlGpu]:
        """Every GPU, in the order of the file."""
        return (pci.gpu for pci in self.pcis() if pci.gpu is not None)

    def nets(self) -> Iterator[XmlNet]:
        """Every network port, those below PCI first."""
        owners: list[XmlPci | XmlCpu] = [*self.pcis(), *self.cpus]
        for nic in (nic for owner in owners for nic in owner.nics):
            yield from nic.nets


# From elements to values: every attribute is checked, and ids must be unique where NCCL needs it.
# Both dumps of NCCL and files written by hand for NCCL_TOPO_FILE are read. The attribute `keep`,
# which NCCL uses only while it detects hardware, is accepted and dropped.

CLASS_OF_ELEMENT = {
    "cpu": XmlCpu, "pci": XmlPci, "gpu": XmlGpu, "nvlink": XmlNvLink, "xgmi": XmlNvLink,
    "c2c": XmlC2c, "pcilink": XmlPciLink, "nic": XmlNic, "net": XmlNet,
}  # fmt: skip
ATTRIBUTE_NAMES = {"class_code": "class", "bandwidth": "bw"}  # attributes, by fields of other names
FIRST_ATTRIBUTES = ("name", "dev", "host_hash", "latency")  # attributes that are written first
# Versions of the file (RCCL, src/graph/xml.h).
NCCL_VERSION = 1
RCCL_VERSION = 2
VERSIONS = {str(version): version for version in (NCCL_VERSION, RCCL_VERSION)}
OMITTED_IF_EMPTY = {("gpu", "gcn"), *(("pci", one.name) for one in fields(XmlPci)[1:6])}  # if empty


@dataclass(frozen=True)
class ElementKind:
    """How a kind of XML element is read and written.

    Args:
        attributes: name of the field and reader of each attribute, in the order of writing.
        children: name of the field for each name of child elements.
    """

    attributes: dict[str, tuple[str, Callable[[Element, str], Any]]]
    children: dict[str, str]


@cache
def kind_of(name: str) -> ElementKind:
    """Return the kind of the element `name`, from the fields of its class."""
    kind = ElementKind({}, {})
    hints = get_type_hints(CLASS_OF_ELEMENT[name], include_extras=True)
    for field_of_class in sorted(
        fields(CLASS_OF_ELEMENT[name]),
        key=lambda field_of_class: field_of_class.name not in FIRST_ATTRIBUTES,
    ):
        annotations = getattr(hints[field_of_class.name], "__metadata__", ("",))
        if callable(annotations[0]):
            read = (
                annotations[0]
                if field_of_class.default is MISSING
                else partial(annotations[0], default=field_of_class.default)
            )
            kind.attributes[ATTRIBUTE_NAMES.get(field_of_class.name, field_of_class.name)] = (
                field_of_class.name,
                read,
            )
        else:
            kind.children.update(dict.fromkeys(filter(None, annotations), field_of_class.name))
    return kind


def parse_system(data: bytes | str, source: str = "<xml>") -> XmlSystem:
    """Return the system in an XML document; `source` is the name of the file in errors."""
    root = parse_elements(data.encode() if isinstance(data, str) else data, source)
    if root.name != "system":
        raise root.error(f"expected a system element at the top, got {root.name}")
    check_names(root, {"version", "name"}, {"cpu"})
    written = text(root, "version")
    if written not in VERSIONS:
        expected = "expected version 1 (NCCL) or 2 (RCCL)"
        raise root.error(f"{expected}, got {shown(written)}", "version")
    version = VERSIONS[written]
    _check_unique(root, version)
    cpus = tuple(_read(cpu) for cpu in root.children if cpu.name == "cpu")
    system = XmlSystem(cpus, text(root, "name", ""), version)
    if not system.cpus:
        raise root.error("no cpu element")
    return system


def _read(element: Element) -> Any:
    """Return an element as an object of its class, with its children."""
    kind = kind_of(element.name)
    check_names(element, {*kind.attributes, "keep"}, kind.children)
    values = {field_: read(element, name) for name, (field_, read) in kind.attributes.items()}
    for name in kind.children.values():
        below = [child for child in element.children if kind.children.get(child.name) == name]
        if name == "gpu" and len(below) > 1:
            raise below[1].error("a pci element holds at most one gpu")
        values[name] = tuple(map(_read, below))
    if "gpu" in values:
        values["gpu"] = values["gpu"][0] if values["gpu"] else None
    if element.name == "xgmi":
        values["xgmi"] = True
    return CLASS_OF_ELEMENT[element.name](**values)


def _check_unique(root: Element, version: int) -> None:
    """Refuse bus ids and NIC numbers that occur twice in a host, and ranks that occur twice in the
    system.

    RCCL's own files have bridges with equal bus ids and NICs with equal numbers. So in its files
    only bus ids of GPUs, to which links refer, must be unique.
    """
    seen: dict[tuple[str, ...], Element] = {}
    is_rccl = version == RCCL_VERSION
    for cpu in root.children:
        host = cpu.attributes.get("host_hash", "")
        for element in cpu.walk():
            for attribute, scope in UNIQUE.get(element.name, ()):
                value = element.attributes.get(attribute, "").lower()
                key = (element.name, attribute, host if scope == "host" else "", value)
                has_gpu = any(child.name == "gpu" for child in element.children)
                is_free = is_rccl and (attribute == "dev" or (attribute == "busid" and not has_gpu))
                if value in ("", "-1") or is_free:
                    continue
                if key in seen:
                    message = f"{attribute} {value} is already used in line {seen[key].line}"
                    raise element.error(message, attribute)
                seen[key] = element


UNIQUE = {
    "pci": (("busid", "host"),), "gpu": (("rank", "system"),), "net": (("dev", "host"),),
    "cpu": (("numaid", "host"),),
}  # fmt: skip


# Writing a system as NCCL's topology XML, such that reading it gives an equal system. Attributes
# with their default value that NCCL's own dumps omit are omitted here, too.


def write_system(system: XmlSystem) -> str:
    """Return the XML of `system`, indented by two blanks per level."""
    name = f" name={_quoted(system.name)}" if system.name else ""
    lines = [f'<system version="{system.version}"{name}>']
    lines += ("  " + line for cpu in system.cpus for line in _written("cpu", cpu))
    return "\n".join([*lines, "</system>"]) + "\n"


def _written(name: str, value: object) -> Iterator[str]:
    """Yield the lines of the XML element `name` that has the attributes and children of `value`."""
    kind = kind_of(name)
    attributes = ""
    for key, (field_, _) in kind.attributes.items():
        field_value = getattr(value, field_)
        if field_value is not None and (field_value or (name, field_) not in OMITTED_IF_EMPTY):
            attributes += f" {key}={_quoted(_text(field_value))}"
    lines = list[str]()
    for child, field_ in kind.children.items():
        below = getattr(value, field_) or ()
        for child_value in below if isinstance(below, tuple) else (below,):
            is_xgmi = isinstance(child_value, XmlNvLink) and child_value.xgmi
            if is_xgmi == (child == "xgmi"):
                lines += ("  " + line for line in _written(child, child_value))
    yield from (
        [f"<{name}{attributes}>", *lines, f"</{name}>"] if lines else [f"<{name}{attributes}/>"]
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value)
