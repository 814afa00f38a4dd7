"""Buckets as obstore opens them: the names in URLs, the settings, the server and the credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from tarkit import errors
from tarkit.errors import TarkitError, Usage, spell
from tarkit.stores.aws import credential_provider, profile_of
from tarkit.stores.names import check_name, is_text, unnamed_error
from tarkit.stores.schemes import SCHEMES, public_name, scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.threads import mark_native_threads, refuse_copy

_BUCKET = re.compile(r"(?!\.+\Z)[A-Za-z0-9._$:-]+")  # `:` is that of the tenants of Ceph, `$` that of `$web` of Azure
_ENDPOINT = re.compile(
    r"https?://([!-~]*@)?(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?(/[!\"$->@-~]*)?"
)
_QUOTED = re.compile(r"\"[^\"]*\"")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_LOGIN = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_CREDENTIALS = {
    "s3": "access_key_id secret_access_key session_token web_identity_token_file",
    "gs": "service_account service_account_key application_credentials bearer_token",
    "az": "account_name account_key sas_key token client_id client_secret federated_token_file",
}
"""Settings that are credentials."""

_NO_ACCOUNT = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'
"""The key of a service account of Google that signs nothing."""

_AS_STORED = {"s3": "identity", "gs": "gzip", "az": "identity"}
"""The encodings to accept so that objects are sent as they are stored.

Google decodes those with `Content-Encoding: gzip` for who does not accept that, and sends no parts of them then
(https://cloud.google.com/storage/docs/transcoding); obstore decodes nothing.
"""

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_ACCOUNTS = {
    "s3": "region",
    "gs": "service_account_key",
    "az": "account_name use_emulator authority_host",
}
"""Settings that choose a server or an account."""
_VARIABLES = {"s3": ("AWS_", "AWS_DEFAULT_"), "gs": ("GOOGLE_",), "az": ("AZURE_STORAGE_", "AZURE_")}


def split_url(url: str, whole: bool = False) -> tuple[str, str, str]:
    """Return the scheme, the bucket and the name of an object, or how names begin.

    Raises:
        Usage: obstore would request another object, or none (see `check_name`).
    """
    scheme = scheme_of(url) or ""
    bucket, _, key = url[len(scheme) + 3 :].partition("/")
    if not bucket:
        raise Usage(f"{public_name(url)}: the bucket is missing", f"{scheme}://BUCKET/NAME")
    if not _BUCKET.fullmatch(bucket):
        raise Usage(f"{public_name(url)}: this is not the name of a bucket", f"{scheme}://BUCKET/NAME")
    check_name(url, key, whole)
    fault = None
    if whole and key.endswith("/"):
        fault = "it ends in a slash"
    elif _CONTROL.search(key):
        fault = "it has a line end or another control character"
    elif not is_text(key):
        fault = "it is not valid UTF-8"
    if fault is not None:
        raise unnamed_error(url, fault)
    return scheme, bucket, key


def split_named(url: str) -> tuple[str, str, str]:
    """Return the scheme, the bucket and the name of an object; raise Usage for an invalid name."""
    scheme, bucket, key = split_url(url, whole=True)
    if not key:
        raise Usage(f"{public_name(url)}: the name of the object is missing", f"{scheme}://BUCKET/NAME")
    return scheme, bucket, key


def open_bucket(scheme: str, bucket: str, options: StoreOptions, retries: int = 0, creates: bool = False) -> Any:
    """Return a bucket.

    Args:
        scheme: s3, gs or az.
        retries: how often obstore repeats a request, to upload or list: `reading.Transfer` and `retry` repeat others.
        creates: all requests have the condition that there is no object of the name (RFC 9110 13.1.2).
    """
    refuse_copy("obstore", "s3://, gs:// and az://")
    return _open(scheme, bucket, options, endpoint_of(scheme, options), retries, creates)


def endpoint_of(scheme: str, options: StoreOptions) -> str | None:
    """Return the server of a scheme, by the options, the environment or a profile; None for that of the provider."""
    endpoint = options.endpoint_url
    origin = spell("endpoint_url")
    for variable in _ENDPOINTS[scheme]:
        if endpoint is None and variable in os.environ:
            endpoint, origin = os.environ[variable], variable
    if endpoint is None and scheme == "s3":
        endpoint, origin = profile_of(options).get("endpoint_url"), "endpoint_url of the AWS profile"
    if endpoint is not None:
        _check_endpoint(endpoint, origin)
    return endpoint


def bucket_address(bucket: str, options: StoreOptions) -> str:
    """Return the URL of a bucket of s3:// at its server."""
    values = {name: str(value) for _, name, value in _settings("s3", options)}
    region = values.get("region") or profile_of(options).get("region") or "us-east-1"
    endpoint = (endpoint_of("s3", options) or f"https://s3.{region}.amazonaws.com").rstrip("/")
    in_host = values.get("virtual_hosted_style_request", "").lower() in ("1", "true", "on", "yes", "y")
    return endpoint if in_host and endpoint_of("s3", options) else f"{endpoint}/{bucket}"


def open_at(bucket: str, options: StoreOptions, address: str) -> Any:
    """Return a bucket of s3:// at this address."""
    return _open.__wrapped__("s3", bucket, options, address, 0)


def server_of(scheme: str, options: StoreOptions) -> list[str]:
    """Return a text that distinguishes servers and accounts that may have objects of equal URLs."""
    values = {name: str(value) for _, name, value in _settings(scheme, options)}
    endpoint = endpoint_of(scheme, options)
    names = [endpoint or "", *(values.get(name, "") for name in _ACCOUNTS[scheme].split())]
    if scheme == "s3":
        profile = profile_of(options)
        names.append(profile.get("region", ""))
        if endpoint is not None:  # a server where each account has buckets of its own
            names += [values.get("access_key_id", ""), profile.get("aws_access_key_id", "")]
    if scheme == "gs":  # the key may name a server
        for path in (values.get("service_account"), os.environ.get("GOOGLE_SERVICE_ACCOUNT_PATH")):
            with suppress(OSError, ValueError), open(path or "", encoding="utf-8") as file:
                names.append(file.read())
    return names


def _settings(scheme: str, options: StoreOptions) -> Iterator[tuple[str, str, object]]:
    """Yield the settings of the options, and those of the environment that obstore reads: label, name, value."""
    for name, value in options.storage.items():
        yield f"storage_options[{name!r}]", name, value
    for name in sorted((SCHEMES[scheme].settings or "").split()):
        for start in _VARIABLES[scheme]:
            variable = f"{start}{name.upper()}"
            if variable in os.environ and name not in options.storage:
                yield variable, name, os.environ[variable]


def _check_value(label: str, name: str, value: object) -> None:
    """Raise Usage, without the value, for one that obstore panics at, and for one of the wrong type."""
    if not isinstance(value, (str, bool)):
        raise Usage(f"{label} is text, or True or False, not {type(value).__name__}")
    text = str(value)
    if name != "service_account_key" and (_CONTROL.search(text) or not is_text(text)):
        raise Usage(f"{label} has a line end or another character that cannot be sent")
    if name in ("metadata_endpoint", "msi_endpoint", "authority_host") and not _is_endpoint(text):
        raise Usage(f"{label} is not a URL of a server")
    if name == "account_name" and not re.fullmatch("[A-Za-z0-9-]+", text):
        raise Usage(f"{label} is not the name of an account")


def _check_endpoint(endpoint: str, origin: str) -> None:
    """Raise Usage for an endpoint that is not the URL of a server; obstore panics at most of them."""
    if not _is_endpoint(endpoint):
        message = f"{origin} {public_name(endpoint)}" if endpoint else f"{origin} is empty"
        raise Usage(f"{message}: an endpoint is a URL", f"for example {spell('endpoint_url', 'http://localhost:9000')}")


def _is_endpoint(text: str) -> bool:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 < int(match["port"] or 80) < 1 << 16:
        return False
    try:
        return "xn--" not in text or bool(match["host"].encode().decode("idna"))
    except UnicodeError:
        return False


@lru_cache(maxsize=64)
def _open(
    scheme: str, bucket: str, options: StoreOptions, endpoint: str | None, retries: int, creates: bool = False
) -> Any:
    for label, name, value in _settings(scheme, options):
        _check_value(label, name, value)
    mark_native_threads("obstore")
    from obstore.store import AzureStore, GCSStore, S3Store

    config: Any = dict(options.storage)
    if options.anonymous:
        config["skip_signature"] = True
    arguments: dict[str, Any] = {
        "client_options": {
            "connect_timeout": f"{options.timeout}s",
            "read_timeout": f"{options.timeout}s",
            "timeout": "7d",
            "allow_http": True,
            "default_headers": {"accept-encoding": _AS_STORED[scheme], **({"if-none-match": "*"} if creates else {})},
        },
        "retry_config": {"max_retries": retries},
    }
    try:
        if scheme == "s3":
            if (region := profile_of(options).get("region")) is not None:
                config.setdefault("region", region)
            if not options.anonymous and (provider := credential_provider(options)) is not None:
                arguments["credential_provider"] = provider
            config["disable_bulk_delete"] = True  # which not all servers have
            if endpoint:
                config["endpoint"] = endpoint
            return S3Store(bucket, config=config, **arguments)
        if scheme == "gs":
            if options.anonymous:
                config.setdefault("service_account_key", _NO_ACCOUNT)  # otherwise writing needs credentials
            if endpoint:
                config["base_url"] = endpoint
            return GCSStore(bucket, config=config, **arguments)
        if endpoint:
            config["endpoint"] = endpoint
        return AzureStore(bucket, config=config, **arguments)
    except TarkitError:
        raise
    except Exception as error:
        raise _settings_error(f"{scheme}://{bucket}", str(error), options) from error


def login_hint(scheme: str, options: StoreOptions, sent: bool = True) -> str:
    """Return where credentials come from; if they were `sent`, those that are given are to be checked."""
    names = _CREDENTIALS[scheme].split()
    if sent and not options.anonymous:
        label_of = {name: label for label, name, _ in _settings(scheme, options)}
        labels = [label_of[name] for name in names if name in label_of]
        if labels:
            return f"check {' and '.join(labels)}"
        if scheme == "s3" and os.environ.get("AWS_PROFILE"):
            return "check the profile of AWS_PROFILE in ~/.aws"
    also = "" if errors.command_line is not None else f", or give {' and '.join(names[:2])} in storage_options"
    return f"{_LOGIN[scheme]}{also}"


def _settings_error(name: str, text: str, options: StoreOptions) -> Usage:
    """Return the error for settings that obstore does not take: with the names of those in its text, and no value."""
    scheme = scheme_of(name) or ""
    wrong = [
        label for label, _, value in _settings(scheme, options) if value != "" and str(value).lower() in text.lower()
    ]
    if wrong:
        return Usage(f"{name}: invalid value of {' or '.join(wrong)}")
    return Usage(f"{name}: {_QUOTED.sub('***', text.partition(chr(10))[0])[:300]}", login_hint(scheme, options))
