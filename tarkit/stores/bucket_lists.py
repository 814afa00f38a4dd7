"""What follows a name in a list of s3://, requested without obstore.

A name that obstore refuses makes an error of a whole page, and it takes a page that is no list for the last one. It
signs the request, whose URL stands in place of the address of a bucket that has a host of its own
(`virtual_hosted_style_request`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import unquote_plus, urlencode
from xml.etree import ElementTree

import obstore

from tarkit.stores.bucket_errors import raise_for
from tarkit.stores.buckets import bucket_address, open_at
from tarkit.stores.http import content, error_for_reply, send, succeeded
from tarkit.stores.retry import list_pages
from tarkit.stores.store import StoreOptions, TryAgain

_VALID = timedelta(hours=1)

Meta = dict[str, Any]
"""An object as obstore describes it; its path is the name as it is stored."""


def listed_by_name(bucket: str, prefix: str, after: str, options: StoreOptions) -> Iterator[Meta]:
    """Yield the objects whose names begin with `prefix`, those behind the name `after`, in the order of the server."""
    query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"} | ({"start-after": after} if after else {})
    return list_pages(f"s3://{bucket}/{prefix}", options, partial(_page, bucket, query, options), "")


def _page(bucket: str, query: dict[str, str], options: StoreOptions, token: str) -> tuple[list[Meta], str | None]:
    """Return the objects of a page of a list, and the token of the next one."""
    name = f"s3://{bucket}/{query['prefix']}"
    parameters = urlencode(query | ({"continuation-token": token} if token else {}))
    address = f"{bucket_address(bucket, options)}?{parameters}"
    if not options.anonymous:
        # the slash between the address and the name of an object, here "", ends an unused parameter
        signing = options.replace(storage={**options.storage, "virtual_hosted_style_request": "true"})
        try:
            address = obstore.sign(open_at(bucket, signing, f"{address}&x-id="), "GET", "", _VALID)
        except BaseException as error:
            raise_for(name, error, options)
    reply = send(options, "GET", address, {}, name=name)
    if not succeeded(reply):
        reply.close()
        raise error_for_reply(name, reply, True)
    try:
        page = ElementTree.fromstring(content(reply, name))
        for element in page.iter():
            element.tag = element.tag.rpartition("}")[2]  # without its name space
        following = _text(page, "NextContinuationToken")
        if page.tag == "ListBucketResult" and (following or _text(page, "IsTruncated") != "true"):
            return [_listed(entry) for entry in page.iter("Contents")], following or None
    except (ElementTree.ParseError, ValueError):
        pass
    raise TryAgain("the server sends something else than a list of objects")


def _listed(entry: ElementTree.Element) -> Meta:
    modified = _text(entry, "LastModified")
    return {
        "path": unquote_plus(_text(entry, "Key")),
        "size": int(_text(entry, "Size")),
        "e_tag": _text(entry, "ETag"),
        "last_modified": datetime.fromisoformat(modified) if modified else None,
    }


def _text(element: ElementTree.Element, tag: str) -> str:
    return element.findtext(tag) or ""
