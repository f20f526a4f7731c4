"""The legend of a drawing: what a link of each kind carries, and what colours mean."""

from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from netsim.plots.style import GREY
from netsim.plots.topology.looks import HEAT, LINKS, width_of
from netsim.plots.topology.values import Picture
from netsim.units import format_bandwidth

_MOST_KEYS = 8
_KEY_TITLE = "one link, in each direction (width by bandwidth)"


def draw_legend(figure: Figure, picture: Picture, left: float, top: float, *, heat: bool) -> None:
    """Kinds of links with their widths, and what colours mean; `top` is where there is room."""
    width, height = figure.get_size_inches()
    rates = sorted({(line.kind, line.rate) for line in picture.lines},
                   key=lambda one: (list(LINKS).index(one[0]), -one[1]))  # fmt: skip
    keys = [
        Line2D([], [], color=GREY if heat else LINKS[kind][0], linewidth=width_of(rate),
               label=_rate_text(kind, rate, picture.usable))
        for kind, rate in rates[:_MOST_KEYS]
    ]  # fmt: skip
    figure.legend(handles=keys, loc="upper left", bbox_to_anchor=(left - 0.05 / width, top),
                  ncols=_columns(len(keys), width), title=_KEY_TITLE,
                  fontsize=9, title_fontsize=9, alignment="left", borderpad=0.1)  # fmt: skip
    if heat:
        place = figure.add_axes((left, 0.45 / height, min(4.5, width - 0.4) / width, 0.13 / height))
        bar = figure.colorbar(ScalarMappable(Normalize(0, 100), HEAT), cax=place,
                              orientation="horizontal")  # fmt: skip
        bar.set_label("utilisation (%), the busiest of links drawn as one; grey: unused",
                      fontsize=9, loc="left")  # fmt: skip
        bar.outline.set_visible(False)
        place.tick_params(labelsize=8)


def _rate_text(kind: str, rate: float, usable: float) -> str:
    if kind in ("nic", "fabric") and usable < 1:
        return (
            f"{LINKS[kind][1]} {format_bandwidth(rate / usable, bits=True)} "
            f"({format_bandwidth(rate)} usable)"
        )
    return f"{LINKS[kind][1]} {format_bandwidth(rate)}"


def _columns(keys: int, width: float) -> int:
    return max(1, min(keys, 4, int(width / 3.1)))


def room_below(picture: Picture, width: float, *, heat: bool) -> float:
    """Inches for the legend."""
    keys = min(_MOST_KEYS, len({(line.kind, line.rate) for line in picture.lines}))
    return 0.5 + 0.2 * -(-keys // _columns(keys, width)) + (0.75 if heat else 0.0)
