"""Names of URLs in messages have no secrets."""

from __future__ import annotations

from tarkit.stores.schemes import public_name
from tests._tools import each_row


@each_row(
    "name",
    ["sig", "X-Amz-Signature", "token", "access_token", "client_secret", "password", "pass", "pwd", "apikey", "auth"]
    + ["Authorization", "jwt", "code", "auth_code", "CODE", "X-Amz-Credential", "passphrase"],
)
@each_row("place", ["?{}", "?a=b&{}", "?a=b;{}", "#{}", "?a=b#{}", "#a=b&{}", ";{}", "?{}&c=d", "?{};c=d", "?{}#c"])
@each_row("value", ["s3cret", "s3cret/s3cret=", "s3cret;s3cret", "", "%73s3cret"])
def test_secrets_in_urls_are_masked(name: str, place: str, value: str) -> None:
    shown = public_name("https://me:s3cret@host/dir/a.tar" + place.format(f"{name}={value}"))
    assert shown.startswith("https://host/dir/a.tar" + place.partition("{")[0] + f"{name}=***")
    assert "s3cret" not in shown


@each_row(
    ("url", "name"),
    [
        ("s3://bucket/key=5/a.tar", None),
        ("https://host/a.tar?author=x&size=5#part=2", None),
        ("https://host/code.tar?codec=zstd&encoding=x", None),
        ("s3://bucket/a;b/c#d.tar", None),
        ("https://host/token/a.tar?a=token", None),
        ("https://me:secret@h/x@y.tar", "https://***@y.tar"),
        ("https://h/\n", "'https://h/\\x0a'"),
    ],
)
def test_the_rest_of_a_url_is_shown(url: str, name: str | None) -> None:
    assert public_name(url) == (name or url)
