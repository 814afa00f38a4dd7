"""The profiles of the AWS tools: where settings and credentials of s3:// come from if no variable has them.

Keys in the files are read here, again every few minutes, so that those that another program renews are valid in a long
run. Ways that take requests or commands, such as SSO, a role or `credential_process`, are left to boto3.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

from tarkit.errors import TarkitError, Usage
from tarkit.stores.store import StoreOptions

_VALID = timedelta(minutes=8)
"""How long keys are used before they are read again; boto3 renews those that expire in less than 10 minutes."""

_OF_BOTO3 = {
    "credential_process": "the command of credential_process",
    "sso_session": "SSO",
    "sso_start_url": "SSO",
    "login_session": "a login",
    "role_arn": "a role",
    "web_identity_token_file": "a role",
}
"""Settings of a profile -> what its keys come from."""

Credentials = dict[str, Any]


def profile_of(options: StoreOptions) -> dict[str, str]:
    """Return the settings of the profile, as the AWS tools read them from two files; {} if the keys are given."""
    if options.anonymous or os.environ.get("AWS_ACCESS_KEY_ID") or "access_key_id" in options.storage:
        return {}
    from configparser import ConfigParser, Error

    name = _profile_name() or "default"
    settings: dict[str, str] = {}
    for variable, path, section in (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    ):
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(os.environ.get(variable) or os.path.expanduser(path))
        except (Error, UnicodeDecodeError) as error:
            raise Usage(f"{path}: {str(error).partition(chr(10))[0]}") from error
        if parser.has_section(section):
            settings |= dict(parser.items(section))
    if not settings and os.environ.get("AWS_PROFILE"):
        raise Usage(f"no profile {name} in ~/.aws/config and ~/.aws/credentials", "AWS_PROFILE names it")
    return {name: value for name, value in settings.items() if value}


def credential_provider(options: StoreOptions) -> Callable[[], Credentials] | None:
    """Return the provider of credentials; None if obstore finds them itself: variables, or a role of the machine."""
    access, secret = options.setting("access_key_id"), options.setting("secret_access_key")
    if access is not None or secret is not None:
        if access is None or secret is None:
            raise Usage("storage_options: access_key_id and secret_access_key go together")
        keys = _credentials(access, secret, options.setting("session_token"), None)
        return lambda: keys
    profile = profile_of(options)
    if "aws_access_key_id" in profile and "role_arn" not in profile:
        return lambda: _keys_of(profile_of(options))
    source = next((words for name, words in _OF_BOTO3.items() if name in profile), None)
    return None if source is None else _of_boto3(source)


def _keys_of(profile: dict[str, str]) -> Credentials:
    """Return the keys in the files. Raises Usage if one is missing."""
    access, secret = profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")
    if access is None or secret is None:
        raise Usage(f"profile {_profile_name() or 'default'}: aws_access_key_id and aws_secret_access_key go together")
    return _credentials(access, secret, profile.get("aws_session_token"), datetime.now(UTC) + _VALID)


def _of_boto3(source: str) -> Callable[[], Credentials]:
    """Return the provider of the credentials of the profile by boto3, which keeps them fresh."""
    name = _profile_name()
    message = f"the AWS profile {name or 'default'} has its keys from {source}"
    try:
        # boto3 alone does not know AWS_REGION
        session = import_module("boto3").Session(profile_name=name, region_name=os.environ.get("AWS_REGION"))
    except ImportError:
        hint = 'pip install boto3; or set variables: eval "$(aws configure export-credentials --format env)"'
        raise TarkitError(f"{message}, which takes boto3", hint) from None

    def fresh() -> Credentials:
        try:
            credentials = session.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        except Exception as error:  # of many classes, of botocore and of the command
            raise TarkitError(f"{message}: {str(error).partition(chr(10))[0]}", "aws sts get-caller-identity") from None
        if frozen is None:
            raise TarkitError(f"{message}, and boto3 finds none")
        return _credentials(frozen.access_key, frozen.secret_key, frozen.token, datetime.now(UTC) + _VALID)

    return fresh


def _credentials(access: str, secret: str, token: str | None, until: datetime | None) -> Credentials:
    return {"access_key_id": access, "secret_access_key": secret, "token": token, "expires_at": until}


def _profile_name() -> str | None:
    return os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or None
