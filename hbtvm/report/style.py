"""Pages in one file: their style sheet, in light and dark, and their frame."""

from __future__ import annotations

from html import escape

from hbtvm.words.printable import shown

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b6539b", "#a67c00", "#3d9bd1", "#7a5ad0", "#707070")
"""Okabe and Ito's colours, safe for colour blindness; pale colours are darkened for a white page."""

MOST = 400  # default maximal length of a log's text on the page, in characters

STYLE = """
:root{color-scheme:light dark;--ink:#1c1f24;--soft:#626b78;--rule:#dfe3e8;--paper:#fff;--warn:#9a5b00}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#9aa3af;--rule:#343a43;--paper:#15181c;--warn:#e0a84a}}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{padding:24px;overflow-wrap:break-word}
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:36px 0 8px}
p,figcaption{max-width:90ch}p{margin:4px 0 12px}
.facts,footer,figcaption,.y,.x,.name{color:var(--soft)}footer{margin-top:40px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{font-weight:600;color:var(--soft);font-size:13px}td.n,th.n{text-align:right;white-space:nowrap}
code{font:12.5px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
details{margin:10px 0}summary{cursor:pointer;color:var(--soft)}.warn{color:var(--warn)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(480px,100%),1fr));gap:20px}
figure{margin:0 0 12px}figcaption{font-size:13px}svg{width:100%;height:auto;display:block}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}.y{text-anchor:end}.x,.name{text-anchor:middle}
.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}.line{fill:none;stroke-width:2;stroke-linejoin:round}
circle.faint{opacity:.5}circle{opacity:.75}circle:hover{opacity:1;stroke:var(--ink)}
.legend span{margin-right:18px;white-space:nowrap}.legend i{display:inline-block;width:11px;height:11px;
border-radius:2px;margin-right:6px}.bar{display:inline-flex;width:260px;height:12px;vertical-align:middle}
.bar i{height:100%;min-width:1px}.bar .failed{opacity:.4}.models{margin:0 0 8px;padding-left:22px}
path.slow{fill:none;stroke-width:1.6}
@media(max-width:640px){main{padding:14px}h1{font-size:21px}h2{font-size:17px}
.legend span{display:inline-block}.cards thead{display:none}.cards table,.cards tbody,.cards tr,.cards td{
display:block}.cards tr{padding:8px 0;border-bottom:1px solid var(--rule)}.cards td,.cards td.n{border:0;
overflow-wrap:anywhere;padding:1px 0 1px 112px;display:flow-root;text-align:left;white-space:normal}
.cards td:before{content:attr(data-head);float:left;margin-left:-112px;width:104px;color:var(--soft);
font-size:13px}.cards td:empty{display:none}.bar{width:150px}}
""" + "".join(
    f".line.s{i},.slow.s{i}{{stroke:{c}}}circle.s{i}{{fill:{c}}}.b{i}{{background:{c}}}"
    for i, c in enumerate(_COLOURS)
)


def text(value: object, most: int = MOST) -> str:
    """Return a log's text as HTML, with unprintable characters escaped and long text cut."""
    return escape(shown(value, most))


def document(title: str, body: str, made_by: str, style: str = "") -> str:
    """Return a page as HTML.

    `title`: the page's title.
    `body`: its content, HTML.
    `made_by`: last line of the page.
    `style`: rules of the style sheet beside `STYLE`.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE}{style}</style></head>\n<body><main>"
        f"<h1>{text(title)}</h1>\n{body}\n<footer>{text(made_by)}</footer></main></body></html>\n"
    )
