"""Lists of s3:// that obstore cannot read, since an object has a name that it refuses: pages requested without it.

One such name makes an error of the whole page. obstore signs the request, whose URL stands in place of the address of a
bucket that has a host of its own (`virtual_hosted_style_request`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote_plus, urlencode
from xml.etree import ElementTree

import obstore

from tarkit.errors import TarkitError
from tarkit.stores.buckets import bucket_address, open_at
from tarkit.stores.http import content, error_for_reply, send, succeeded
from tarkit.stores.retry import request_again
from tarkit.stores.store import StoreOptions, TryAgain, unquote_etag

_VALID = timedelta(hours=1)


class Listed(NamedTuple):
    """An object of a list, by its name as it is stored."""

    name: str
    size: int
    etag: str | None
    modified: datetime | None


def listed_by_name(bucket: str, prefix: str, after: str, options: StoreOptions) -> Iterator[Listed]:
    """Yield the objects whose names begin with `prefix`, those behind the name `after`, in the order of the server."""
    query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"} | ({"start-after": after} if after else {})
    tokens = set[str]()
    while True:
        page = request_again(partial(_page, bucket, query, options), f"s3://{bucket}/{prefix}", options)
        for entry in page.iter("Contents"):
            text = partial(_text, entry)
            modified = datetime.fromisoformat(text("LastModified")) if text("LastModified") else None
            yield Listed(unquote_plus(text("Key")), int(text("Size")), unquote_etag(text("ETag")), modified)
        token = _text(page, "NextContinuationToken")
        if _text(page, "IsTruncated") != "true":
            return
        if not token or token in tokens:
            raise TarkitError(f"s3://{bucket}/{prefix}: the server sends a page of a list that names no next one")
        tokens.add(token)
        query["continuation-token"] = token


def _page(bucket: str, query: dict[str, str], options: StoreOptions) -> ElementTree.Element:
    """Return a page of a list, without the name spaces of its tags; raises TryAgain for what is no list."""
    name = f"s3://{bucket}/{query['prefix']}"
    address = f"{bucket_address(bucket, options)}?{urlencode(query)}"
    if not options.anonymous:
        # the slash between the address and the name of an object, here "", ends a parameter that nobody reads
        signing = replace(options, storage={**options.storage, "virtual_hosted_style_request": "true"})
        address = obstore.sign(open_at(bucket, signing, f"{address}&x-id="), "GET", "", _VALID)
    reply = send(options, "GET", address, {}, name=name)
    if not succeeded(reply):
        reply.close()
        raise error_for_reply(name, reply, True)
    try:
        page = ElementTree.fromstring(content(reply, name))
    except ElementTree.ParseError:
        page = ElementTree.Element("")
    for element in page.iter():
        element.tag = element.tag.rpartition("}")[2]
    if page.tag != "ListBucketResult":
        raise TryAgain("the server sends something else than a list of objects")
    return page


def _text(element: ElementTree.Element, tag: str) -> str:
    return element.findtext(tag) or ""
