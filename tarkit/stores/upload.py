"""Objects that are written: given up after the first error, and compared with the object in the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tarkit.errors import TarkitError
from tarkit.sizes import plural
from tarkit.stores.retry import request_again
from tarkit.stores.store import Denied, Info, Store, StoreOptions, TryAgain, Unconfirmed, Upload, exists_error


class RemoteUpload:
    """An object that is written: given up after the first error, and with `fresh` not in place of another.

    Once it is complete the store is asked for its length.

    Args:
        name: its name for messages, without secrets.
        fresh: an object that exists when this one is completed is an error.
    """

    def __init__(self, store: Store, url: str, name: str, options: StoreOptions, fresh: bool = False) -> None:
        self._head = partial(request_again, partial(store.head, url), name, options)
        self._delete = partial(request_again, partial(store.delete, url), name, options)
        self._name = name
        self._fresh = fresh
        self._size = 0
        self._written: Info | None = None  # the object, once it is known to be the one that was written
        try:  # in this thread, as are writes: an upload begun in another thread would stay if this one is interrupted
            self._upload: Upload = store.put(url, fresh)
        except TryAgain as failure:
            raise self._not_written_error(failure) from failure

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        self._size += len(data)
        self._do(partial(self._upload.write, data))

    def close(self) -> None:
        """Complete the object. After an error it does not exist, unless the error is `Unconfirmed`."""
        if self._fresh:
            self._do(self._refuse_existing)
        self._do(self._upload.close)
        self._confirm()

    def abort(self) -> None:
        """Remove the written bytes."""
        self._upload.abort()

    def withdraw(self) -> bool:
        """Remove the object that `close` has completed; return whether it is gone. One of another writer stays."""
        if self._written is None:
            return False
        try:
            info = self._head()
            if (info.version, info.mark) != (self._written.version, self._written.mark) or info.version is None:
                return False
            self._delete()
        except FileNotFoundError:
            pass
        return True

    def _refuse_existing(self) -> None:
        try:
            self._head()
        except FileNotFoundError:
            return
        raise exists_error(self._name)

    def _confirm(self) -> None:
        try:
            info = self._head()
        except FileNotFoundError as error:
            words = "the server does not find this object, although it said that it has stored it"
            raise Unconfirmed(f"{self._name}: {words}") from error
        except Denied:  # of credentials that may write, but not read
            return
        except TarkitError as error:
            raise Unconfirmed(f"{error}; the object was written, and its length was not compared") from error
        upload = self._upload
        if info.mark not in (upload.mark, None):
            raise TarkitError(f"{self._name}: another writer has replaced this object meanwhile")
        proved = info.mark is not None or (upload.version is not None and upload.version == info.version)
        right = info.size in (self._size, None)
        if proved or (right and upload.version is None):
            self._written = info
        if right:
            return
        words = f"{self._name}: the server has {plural(info.size or 0, 'byte')} of this object, {self._size} were sent"
        try:
            gone = self.withdraw()
        except (TarkitError, OSError):
            gone = False
        if gone:
            raise TarkitError(f"{words}; it was removed")
        raise Unconfirmed(f"{words}; it is there", "remove it")

    def _do(self, action: Callable[[], object]) -> None:
        """Perform an action; abort the upload after an error."""
        try:
            action()
        except BaseException as error:
            self.abort()
            if isinstance(error, TryAgain):
                raise self._not_written_error(error) from error
            raise

    def _not_written_error(self, failure: TryAgain) -> TarkitError:
        return TarkitError(f"{self._name}: {failure}; the object was not written")
