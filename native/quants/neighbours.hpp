// For every point that elements may round to, the grid points that ggml tries in its place:
// iq2xs_init_impl and iq3xs_init_impl of ggml. Made once per process, when first asked for.
#pragma once
#include <stdint.h>

enum GridName : int { grid_iq2_xxs, grid_iq2_xs, grid_iq2_s, grid_iq1, grid_iq3_xxs, grid_iq3_s };

// The neighbours of one point: `chunks` vectors of as many entries as there are lanes. Lane by
// lane, each from its first chunk to its last, they come in ggml's order; what fills up the last
// lanes repeats the first neighbour.
struct Cell {
    uint64_t word;  // from bit 32 on the first entry, from 16 the chunks, from 10 the shift

    uint32_t first() const { return static_cast<uint32_t>(word >> 32); }
    int chunks() const { return static_cast<int>(word >> 16 & 0xFFFF); }
    // Sixteen times what kind of cell it is: 0 for a point on the grid, its own and only
    // neighbour; else the number of chunks, up to 3.
    int shift() const { return static_cast<int>(word >> 10 & 63); }
    bool on_grid() const { return shift() == 0; }
};

// Cells are numbered by their levels, the first element's being the highest digit. Levels lie in
// a code at bits 4 * i, and above each level stands i, of which vectors narrower than sixteen
// lanes read less or nothing: it says which part of a table of sixteen is element i's.
struct Neighbours {
    const Cell *cells;  // without neighbours that cannot be nearest to what rounds to the point
    int32_t count;      // of those; as many follow, with all of ggml's neighbours
    const uint32_t *codes;
    const uint16_t *points;  // indices in the grid

    const Cell &whole_cell(int number) const { return cells[count + number]; }
};

extern "C" const Neighbours *ggufkit_neighbours(GridName grid, int lanes);
