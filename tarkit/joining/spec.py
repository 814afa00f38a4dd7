"""What a table is joined by: the file, the column with keys, and how these are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from tarkit.errors import Usage, show, spell
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, split_column

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Chain

NAMES = ("key", "stem")
"""What rows are found by, beside values of samples."""

OnDuplicate = Literal["error", "first", "last"]

KEY_COLUMN = "__key__"


class JoinSpec(NamedTuple):
    """What is joined, and how rows are found.

    Attributes:
        word: the file of the table, or the archives; for a dataset a name for messages.
        column: the column that has the keys of samples, or names of their files.
        by: what is in that column: `key`, a key or the path of a file; `stem`, perhaps the last part of one; or the
            name of a value of samples, such as `json.id`.
        on_duplicate: which of two rows with one key counts.
        storage: how a URL is reached.
        data: the dataset of which the table is a view; None for a file, or for archives.
        one_text: whether table and column were given as one text, `TABLE:COLUMN`.
    """

    word: str
    column: str = KEY_COLUMN
    by: str = "key"
    on_duplicate: OnDuplicate = "error"
    storage: StoreOptions | None = None
    data: Chain | None = None
    one_text: bool = False

    @classmethod
    def of(cls, word: str, column: str, by: str, on_duplicate: OnDuplicate, storage: StoreOptions | None) -> JoinSpec:
        """Return the specification. Raises Usage for a file that is neither a table nor an archive by its name."""
        from tarkit.tables.rows import table_format

        spec = cls(word, column, by, on_duplicate, storage)
        if not spec.has_archives:
            table_format(word)
        return spec

    @classmethod
    def parse(cls, text: str, by: str, on_duplicate: OnDuplicate) -> JoinSpec:
        """Return the specification of `TABLE[:COLUMN]`. Raises Usage."""
        word, column = split_column(text)
        if not word:
            raise Usage(f"{spell('join')} {show(text)}: not TABLE or TABLE:COLUMN")
        return cls.of(word, column or KEY_COLUMN, by, on_duplicate, None)._replace(one_text=True)

    @property
    def by_value(self) -> bool:
        """Whether rows are found by a value of samples."""
        return self.by not in NAMES

    @property
    def has_archives(self) -> bool:
        """Whether the word names plain archives, in place of a table."""
        return self.data is None and self.word.partition("?")[0].lower().endswith(".tar")

    @property
    def in_file(self) -> bool:
        """Whether the word names a file with the rows, in place of samples."""
        return self.data is None and not self.has_archives

    @property
    def with_column(self) -> str:
        """The table with a column, as the caller writes it, for hints."""
        return spell("join", f"{self.name}:COLUMN") if self.one_text else f"join({self.name!r}, 'COLUMN')"

    @property
    def name(self) -> str:
        """The name of the table for messages."""
        return file_label(self.word)
