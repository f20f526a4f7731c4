"""XML text to a tree of elements with their lines, refusing what can do harm.

No document type, no entities, no external references, and limits on size, depth and number of
elements. Knows XML only; what the elements mean is read elsewhere.
"""

from collections.abc import Iterator
from dataclasses import field
from io import BytesIO
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

from defusedxml import DefusedXmlException, sax

from netsim.errors import ScenarioError
from netsim.values import dataclass

LARGEST_FILE = 32 * 2**20
LARGEST_ATTRIBUTE = 4096
MOST_ELEMENTS = 200_000
DEEPEST = 32


@dataclass(frozen=True)
class Element:
    """One element: name, attributes, place in the source, and its children in order."""

    name: str
    attributes: dict[str, str]
    source: str
    line: int
    column: int
    children: list["Element"] = field(default_factory=list)

    def walk(self) -> Iterator["Element"]:
        """The element and all below it, in the order of the file."""
        stack = [self]
        while stack:
            element = stack.pop()
            yield element
            stack.extend(reversed(element.children))

    def error(self, message: str, attribute: str = "", hint: str = "") -> ScenarioError:
        """An error at this element, or at one of its attributes."""
        place = f"{self.name}.{attribute}" if attribute else self.name
        return ScenarioError(
            message,
            source=self.source,
            line=self.line,
            column=self.column,
            field=place,
            hint=hint,
        )


def parse_elements(data: bytes, source: str) -> Element:
    """The root element of an XML document; every fault is a `ScenarioError` with its place."""
    if len(data) > LARGEST_FILE:
        raise ScenarioError(f"larger than {LARGEST_FILE >> 20} MiB", source=source)
    tree = _Tree(source)
    parser = sax.make_parser()
    parser.forbid_dtd = True
    parser.setContentHandler(tree)
    try:
        parser.parse(BytesIO(data))
    except SAXParseException as error:
        line, column = error.getLineNumber() or 1, (error.getColumnNumber() or 0) + 1
        message = f"not XML: {error.getMessage()}"
        raise ScenarioError(message, source=source, line=line, column=column) from None
    except DefusedXmlException:
        message = "a document type, entity or external reference is not allowed"
        raise ScenarioError(message, source=source, line=tree.line) from None
    except (UnicodeError, LookupError, ValueError) as error:
        raise ScenarioError(f"not XML: {error}", source=source, line=tree.line) from None
    return tree.root[0]


class _Tree(ContentHandler):
    """Builds the tree while the parser reads; stops at the first limit that is passed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.root: list[Element] = []
        self.open: list[Element] = []
        self.count = 0
        self.place: Locator | None = None

    @property
    def line(self) -> int:
        number = self.place.getLineNumber() if self.place else None
        return number or 1

    def setDocumentLocator(self, locator: Locator) -> None:
        self.place = locator

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        column = (self.place.getColumnNumber() or 0) + 1 if self.place else 1
        element = Element(name, dict(attrs.items()), self.source, self.line, column)
        self.count += 1
        self._check(element)
        siblings = self.open[-1].children if self.open else self.root
        siblings.append(element)
        self.open.append(element)

    def endElement(self, name: str) -> None:
        self.open.pop()

    def _check(self, element: Element) -> None:
        if self.count > MOST_ELEMENTS:
            raise element.error(f"more than {MOST_ELEMENTS} elements")
        if len(self.open) >= DEEPEST:
            raise element.error(f"nested deeper than {DEEPEST} elements")
        for name, text in element.attributes.items():
            if len(text) > LARGEST_ATTRIBUTE:
                raise element.error(f"longer than {LARGEST_ATTRIBUTE} characters", name)
