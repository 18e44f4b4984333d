"""An app is found by MODULE:APP, alike from the command line and in a child process."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from tenure import App
from tenure.cli.loading import load_app
from tenure.errors import Invalid
from tenure.worker.processes.importing import load


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("shop_of_a_test")
    module.app, module.number, module.nested = App(), 3, SimpleNamespace(jobs=App())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize("find", [load, load_app])
def test_module_alone_means_its_app(find, shop: ModuleType):
    assert find("shop_of_a_test") is find("shop_of_a_test:app") is shop.app


@pytest.mark.parametrize("find", [load, load_app])
def test_app_may_be_the_attribute_of_an_attribute(find, shop: ModuleType):
    assert find("shop_of_a_test:nested.jobs") is shop.nested.jobs


@pytest.mark.parametrize(
    ("name", "hint"), [("shop_of_a_test.py", "shop_of_a_test:app"), ("./src/mail.py", "src.mail:app"), ("mail", "")]
)
def test_a_file_in_place_of_a_module_is_refused_with_what_to_say(shop: ModuleType, name: str, hint: str):
    with pytest.raises(Invalid) as caught:
        load_app(name)
    assert (f": say {hint}" in caught.value.message) is bool(hint)


@pytest.mark.parametrize("find", [load, load_app])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shop_of_a_test:gone", "module 'shop_of_a_test' has no 'gone'; it has shop_of_a_test:app"),
        ("shop_of_a_test:number", "'shop_of_a_test:number' is int, not a tenure.App; it has shop_of_a_test:app"),
    ],
)
def test_what_is_no_app_is_refused_with_the_apps_that_are_there(find, shop: ModuleType, name: str, message: str):
    with pytest.raises(Invalid) as caught:
        find(name)
    assert caught.value.message == message
