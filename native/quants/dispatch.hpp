// The tables of kernels that this machine can run.
#pragma once
#include <string>
#include <vector>

#include "table.hpp"

// The tables that this machine can run, the fastest first; never empty.
const std::vector<const Table *> &runnable_tables();

// The runnable table of that name; throws std::invalid_argument with the valid names.
const Table &table_named(const std::string &isa);

// The codec of a type in a table, or null if the type has none.
const Codec *find_codec(const Table &table, uint32_t id);

// The refiner of a type in a table, or null if the type has none.
const Refiner *find_refiner(const Table &table, uint32_t id);

// The size of the last-level cache in bytes, or a usual size if the system does not report it.
int64_t last_level_cache_bytes();
