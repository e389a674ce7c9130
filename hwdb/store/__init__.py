"""The calibrations that a server was given, in SQLite or PostgreSQL: immutable versions of each tenant, which of them answers,
and who decided so.

    store       Store: what there is, what answers, publish and roll back
    uploads     Upload: a calibration on its way in
    announced   what of an upload is refused before a byte has come
    shelf       those that were fetched, within a number of bytes
    tables      the tables, as SQLAlchemy Core knows them
    migrations  numbered SQL files that made them, for both databases
    engine      opens a database, brings it up to date, turns its errors into ours

A change is one transaction, so a kill at any moment leaves the old state or the new one.
"""
