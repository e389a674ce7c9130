-- Calibrations, whole: a row here means that every file is there and was checked.
CREATE TABLE calibration (
    tenant TEXT NOT NULL, sku TEXT NOT NULL, id TEXT NOT NULL,
    content_sha256 TEXT NOT NULL, who TEXT NOT NULL, at BIGINT NOT NULL,
    PRIMARY KEY (tenant, sku, id)
);
CREATE TABLE calibration_file (
    tenant TEXT NOT NULL, sku TEXT NOT NULL, id TEXT NOT NULL,
    path TEXT NOT NULL, content BYTEA NOT NULL,
    PRIMARY KEY (tenant, sku, id, path),
    FOREIGN KEY (tenant, sku, id) REFERENCES calibration (tenant, sku, id)
);
-- Uploads on their way: nothing reads them but the upload itself.
CREATE TABLE upload_file (
    tenant TEXT NOT NULL, content_sha256 TEXT NOT NULL,
    path TEXT NOT NULL, size_bytes BIGINT NOT NULL, sha256 TEXT NOT NULL,
    received_bytes BIGINT NOT NULL, at BIGINT NOT NULL,
    PRIMARY KEY (tenant, content_sha256, path)
);
CREATE TABLE upload_piece (
    tenant TEXT NOT NULL, content_sha256 TEXT NOT NULL,
    path TEXT NOT NULL, offset_bytes BIGINT NOT NULL, content BYTEA NOT NULL,
    PRIMARY KEY (tenant, content_sha256, path, offset_bytes)
);
-- Which calibration answers for a SKU.
CREATE TABLE active (
    tenant TEXT NOT NULL, sku TEXT NOT NULL, id TEXT NOT NULL,
    PRIMARY KEY (tenant, sku)
);
-- Who did what: rows are only ever added.
CREATE TABLE audit (
    number BIGINT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL, tenant TEXT NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL,
    sku TEXT NOT NULL, id TEXT NOT NULL, before TEXT NOT NULL, reason TEXT NOT NULL
);
-- One row: counts the changes that others must see. Whoever changes it holds the write lock of everything above.
CREATE TABLE revision (number BIGINT NOT NULL);
INSERT INTO revision (number) VALUES (0);
