"""Between the contract's messages and the objects of hwdb and server: names and enums change, values do not."""
