"""Reading what runs have written: the page of ``gym-runtime view``, ``show`` and ``compare``.

    rows, indices ─▶ indexing ──▶ server ──▶ the page (static/, built from viewer-page/)
                       │           └─ access: who may ask
                       ├──▶ export: the same page and rows as plain files
                       ├──▶ row: one row taken apart ──▶ show
                       └──▶ figures, comparison ──▶ compare

The server never reads a row: the page takes index records and byte ranges. The page's own figures are
those of `figures`, number for number, which a test holds.
"""
