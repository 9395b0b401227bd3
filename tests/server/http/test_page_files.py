"""The page's files: what is served, as what, with which headers; and that they keep to themselves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from server.http import page_files
from server.http.page_files import page_routes

STATIC = Path(page_files.__file__).parents[1] / "page"
SCRIPTS = sorted(STATIC.rglob("*.js"))
#: The same in both languages.
ALIKE = {"Runebook", "English"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Starlette(routes=page_routes()), base_url="http://127.0.0.1") as client:
        yield client


def texts(language: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((STATIC / "locales" / f"{language}.json").read_text(encoding="utf-8"))
    return found


def test_the_start_page_may_load_only_from_its_own_server_and_cannot_be_framed(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_every_setting_is_described_in_chinese_and_nothing_else_is() -> None:
    english = dict(
        described(json.loads((STATIC.parents[1] / "memory_core" / "core" / "config.json").read_text(encoding="utf-8")))
    )
    chinese = texts("settings.zh")
    assert chinese.keys() == english.keys()
    assert [name for name, text in chinese.items() if not re.search(r"[\u4e00-\u9fff].*。$", text)] == []
    for name, text in english.items():  # what is written alike in both: commands, addresses and other settings
        literal = re.findall(r"https?://[^\s;,]+|\b[a-z]+[._][a-z_]+\b|\brunebook [a-z]+", text)
        assert [each for each in literal if each.rstrip(".,") not in chinese[name] and each not in ("e.g",)] == [], name


def described(section: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in section.items():
        if isinstance(value, dict):
            yield from described(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def test_every_file_is_served_as_what_it_is(client: TestClient) -> None:
    kinds = {".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".svg": "image/svg+xml"}
    for path in STATIC.rglob("*"):
        if path.suffix in kinds:
            answer = client.get(f"/ui/{path.relative_to(STATIC).as_posix()}")
            assert answer.status_code == 200, path
            assert answer.headers["content-type"].startswith(kinds[path.suffix]), path
            assert answer.content == path.read_bytes()


def test_an_unchanged_file_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/ui/js/main.js")
    again = client.get("/ui/js/main.js", headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/ui/js/main.js", headers={"If-None-Match": '"other"'}).status_code == 200


def test_no_path_leads_out_of_the_pages_files(client: TestClient) -> None:
    outside = ("../page.py", "js/../../page.py", "js/..\\..\\page.py", "/etc/hostname", "..", ".", "", "C:/x.js")
    odd = ("js", "js/", "js//main.js", "js/main.js\0.css", ".hidden.js", "nothing.js", "网页.js", "JS/main.js\n")
    assert [path for path in (*outside, *odd) if page_files.static_file(path) is not None] == []
    for encoded in ("..%2fpage.py", "%2e%2e/page.py", "js/..%5c..%5cpage.py", "js/main.js%00.css", "nothing.js"):
        answer = client.get(f"/ui/{encoded}")
        assert answer.status_code == 404
        assert "content-security-policy" in answer.headers
        assert "inspector" not in answer.text


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside.js"
    outside.write_text("secret", encoding="utf-8", newline="\n")
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "in.js").write_text("fine", encoding="utf-8", newline="\n")
    (folder / "out.js").symlink_to(outside)
    monkeypatch.setattr(page_files, "_STATIC", folder)
    assert page_files.static_file("in.js") is not None
    assert page_files.static_file("out.js") is None


def test_every_script_style_and_import_that_is_named_is_there() -> None:
    named = re.findall(r'(?:href|src)="/ui/([^"]+)"', (STATIC / "index.html").read_text(encoding="utf-8"))
    assert named
    missing = [name for name in named if not (STATIC / name).is_file()]
    for script in SCRIPTS:
        for name in re.findall(r"(?:from|import\()\s*'(\.[^']+)'", script.read_text(encoding="utf-8")):
            target = (script.parent / name).resolve()
            if not target.is_file():
                missing.append(f"{script.name}: {name}")
    assert missing == []


def test_the_start_page_holds_no_inline_script_or_style() -> None:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = dict(attrs)
            found.extend(name for name in given if name.startswith("on") or name == "style")
            if tag == "style" or (tag == "script" and "src" not in given):
                found.append(tag)

    Reader().feed((STATIC / "index.html").read_text(encoding="utf-8"))
    assert found == []


def test_no_script_reads_data_as_markup_or_as_code() -> None:
    risky = re.compile(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function|srcdoc)\b")
    found = [
        f"{script.name}: {line.strip()}"
        for script in SCRIPTS
        for line in script.read_text(encoding="utf-8").splitlines()
        if risky.search(line.split("//")[0])
    ]
    assert found == []


def test_no_file_names_another_server() -> None:
    allowed = {"http://www.w3.org/2000/svg"}
    found = {
        address
        for path in STATIC.rglob("*")
        # Libraries name their authors; that they call nobody is what the browser tests watch.
        if path.suffix in {".js", ".css", ".html", ".svg"} and path.parent.name != "vendor"
        for address in re.findall(r"https?://[^\s'\"`)<]+", path.read_text(encoding="utf-8"))
    }
    assert found <= allowed


def test_both_languages_say_everything_with_the_same_values() -> None:
    english, chinese = texts("en"), texts("zh")
    assert english.keys() == chinese.keys()
    for key, said in english.items():
        other = chinese[key]
        assert said, key
        assert other, key
        counted = key.endswith(".one")  # "1 条" and "One memory" may both leave the number out
        if not counted:
            assert set(re.findall(r"\{(\w+)\}", said)) == set(re.findall(r"\{(\w+)\}", other)), key


def test_the_chinese_texts_are_chinese() -> None:
    untranslated = [
        key
        for key, said in texts("zh").items()
        if not re.search(r"[\u4e00-\u9fff]", said) and re.search(r"[A-Za-z]{3}", re.sub(r"\{\w+\}", "", said))
    ]
    assert [key for key in untranslated if texts("zh")[key] not in ALIKE] == []


def test_every_text_that_a_script_asks_for_is_there() -> None:
    english = texts("en")
    missing = [
        f"{script.name}: {key}"
        for script in SCRIPTS
        for key in re.findall(r"\bt\('([^'$]+)'", script.read_text(encoding="utf-8"))
        if key not in english and f"{key}.other" not in english
    ]
    assert missing == []


def test_vendored_libraries_are_the_files_that_were_recorded() -> None:
    vendor = Path(page_files.__file__).parents[1] / "page" / "vendor"
    record = json.loads((vendor / "vendored.json").read_text(encoding="utf-8"))
    assert record
    for each in record:
        assert hashlib.sha256((vendor / each["file"]).read_bytes()).hexdigest() == each["sha256"], each["package"]
        assert each["integrity"].startswith("sha512-")
        assert each["license"] in {"MIT", "ISC", "BSD-3-Clause", "Apache-2.0"}
        assert (vendor / f"{each['package']}.LICENSE.txt").is_file()
    known = {name for each in record for name in (each["file"], f"{each['package']}.LICENSE.txt")} | {"vendored.json"}
    assert {path.name for path in vendor.iterdir()} == known
