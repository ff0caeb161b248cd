# SPDX-License-Identifier: MIT
"""A hook of mkdocs: the pages are the repository's files where they lie, so that each link is right in a checkout and on the site.

Pages are README.md, what is in docs, and what they link to, however far: Markdown as it is, man pages by mandoc, other text as a listing. The
order is that of docs/README.md."""
import functools
import logging
import pathlib
import posixpath
import re
import subprocess

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTED = subprocess.check_output(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], text=True)
FILES = {name for name in LISTED.split("\n") if (ROOT / name).is_file()}
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")
MANUAL = re.compile(r"docs/man/(.*)\.(\d)$")
MANUAL_INDEX = "docs/man/README.md"  # which is made here
MANUALS = sorted(name for name in FILES if MANUAL.match(name))
LANGUAGES = {".toml": "toml", ".py": "python"}
# Of a page without headings in Markdown: no table of contents.
BARE = "---\nhide: [toc]\n---\n"
# A browser refuses what a page would load from elsewhere. Signs that the theme's search takes for operators are parts of what is looked for
# here, such as --follow; and all words of it have to be there.
HEAD = """<meta http-equiv="Content-Security-Policy" content="default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:">
<script>var __search = {transform: (query) => query.replace(/["+~^:*]|(^|\\s)-+/g, " ").trim().split(/\\s+/).map((word) => word && "+" + word).join(" ")}</script>"""


def target(place, link):
    """The file that a link of the file `place` means: of a folder, what tells of it."""
    name = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
    return f"{name}/README.md" if (ROOT / name).is_dir() else name


def is_copied(name):
    """What a browser shows by itself."""
    return name.endswith((".png", ".svg", ".json"))


def place_of(name):
    """The name that a file has for mkdocs, which takes only Markdown for pages."""
    return name if name.endswith(".md") or is_copied(name) else f"{name}.md"


@functools.cache
def text(name):
    """A file's page, as Markdown."""
    if name == MANUAL_INDEX:
        return "# Man pages\n\n" + "\n".join(f"* [{title(name)}]({posixpath.basename(name)}): {purpose(name)}" for name in MANUALS)
    if name in MANUALS:
        shown = subprocess.check_output(["mandoc", "-T", "html", "-O", "fragment", ROOT / name], text=True)
        # Its own heading is the page's, and those below it are one smaller.
        shown = re.sub(r'<table class="(head|foot)">.*?</table>', "", shown, flags=re.S)
        shown = re.sub(r"<(/?)h([12])\b", lambda match: f"<{match[1]}h{int(match[2]) + 1}", shown)
        shown = re.sub(r'<a class="permalink" href="#[^"]*">(.*?)</a>', r"\1", shown, flags=re.S)
        return f"{BARE}# {title(name)}\n\n{shown}"
    content = (ROOT / name).read_text()
    if name.endswith(".md"):
        return content
    return f"{BARE}# {posixpath.basename(name)}\n\n``` {LANGUAGES.get(pathlib.Path(name).suffix, 'text')}\n{content}\n```\n"


def title(name):
    if name in MANUALS:
        return "{}({})".format(*MANUAL.match(name).groups())
    return re.search(r"^# (.*)", text(name), re.M)[1].replace("`", "")


def purpose(manual):
    """What a man page says behind its name."""
    return re.search(r"^\.SH \"?NAME\"?\n.*? \\?- (.*)", (ROOT / manual).read_text(), re.M)[1].replace("\\-", "-")


def links(name, content):
    """The files that a part of the document `name` leads to."""
    return [target(name, link) for link, _ in LINK.findall(content)]


@functools.cache
def reached():
    """Every file of the site."""
    found, waiting = set(), ["README.md", MANUAL_INDEX, *sorted(name for name in FILES if name.startswith("docs/"))]
    while waiting:
        name = waiting.pop()
        # What is missing is mkdocs' to complain of.
        if name not in found and (name in FILES or name == MANUAL_INDEX):
            found.add(name)
            waiting += links(name, text(name)) if name.endswith(".md") else []
    return found


def navigation():
    """The sections of docs/README.md, and each page in the first that names it; with a folder's page the rest of the folder."""
    sections, known = [{"Start": "README.md"}, {title("docs/README.md"): "docs/README.md"}], {"README.md", "docs/README.md"}
    for section in re.split(r"^## ", text("docs/README.md"), flags=re.M)[1:]:
        entries = []
        for name in links("docs/README.md", section):
            if name in known or is_copied(name):
                continue
            known.add(name)
            folder = posixpath.dirname(name)
            if posixpath.basename(name) == "README.md" and folder.startswith("docs/"):
                rest = sorted(other for other in reached() if posixpath.dirname(other) == folder and other != name)
                known.update(rest)
                entries.append({title(name): [place_of(name), *({title(other): place_of(other)} for other in rest)]})
            else:
                entries.append({title(name): place_of(name)})
        sections.append({section.split("\n")[0]: entries})
    return sections


def anchor(heading, separator):
    """As Tests/references, and as GitHub does."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def on_config(config):
    # Only what fails the build is said.
    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    config["nav"] = navigation()
    config["mdx_configs"]["toc"]["slugify"] = anchor
    return config


def on_files(files, config):
    theme = [file for file in files if file.abs_src_path and not file.abs_src_path.startswith(config["docs_dir"])]
    own = [File(place_of(name), str(ROOT), config["site_dir"], False) for name in sorted(reached())]
    return Files(theme + own + [File(name, str(ROOT), config["site_dir"], False) for name in ("deploy/site/site.css", "Sources/Pages/icon.svg")])


def on_page_read_source(page, config):
    name = page.file.src_uri
    return text(name if name in FILES or name == MANUAL_INDEX else name.removesuffix(".md"))


def on_page_markdown(markdown, page, config, files):
    place = page.file.src_uri

    def link(match):
        meant = target(place, match[1])
        name = place_of(meant) if meant in reached() else meant
        return f"]({posixpath.relpath(name, posixpath.dirname(place) or '.')}{match[2] or ''})"

    return LINK.sub(link, markdown)


def on_post_page(output, page, config):
    return output.replace("<head>", f"<head>\n{HEAD}", 1)
