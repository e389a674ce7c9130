-- A page of the log is found without a look at every entry of every tenant.
CREATE INDEX audit_of ON audit (tenant, sku, number);
