-- What a tenant keeps is counted and may be deleted: softly first (0: it is there), its files for good a month later.
ALTER TABLE calibration ADD COLUMN size_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE calibration ADD COLUMN deleted_at BIGINT NOT NULL DEFAULT 0;
UPDATE calibration SET size_bytes = (
    SELECT COALESCE(SUM(LENGTH(content)), 0) FROM calibration_file AS file
    WHERE file.tenant = calibration.tenant AND file.sku = calibration.sku AND file.id = calibration.id
);
-- Whose an upload is, so that one caller cannot take all places of a tenant.
ALTER TABLE upload_file ADD COLUMN who TEXT NOT NULL DEFAULT '';
