// For every point that elements may round to, the grid points that ggml tries in its place:
// iq2xs_init_impl and iq3xs_init_impl of ggml. Made once per process, when first asked for.
#pragma once
#include <stdint.h>

enum GridName : int { grid_iq2_xxs, grid_iq2_xs, grid_iq2_s, grid_iq1, grid_iq3_xxs, grid_iq3_s };

constexpr int level_step = 24;

// The neighbours of one point, in ggml's order. A point on the grid is its own and only one.
struct Cell {
    uint32_t first;  // of the codes
    uint32_t code;   // that one
    uint16_t count;
    uint8_t on_grid;
    uint8_t rounds;  // of four neighbours each, at most three, and two at least where points have
                     // eight dimensions: none where there is no choice
};

// The value of `rounds` if points have eight dimensions of three levels, and the neighbours are all
// points one level up or down in one dimension. Their codes follow that of the point itself, which
// has no index, and for each dimension the indices of its neighbours: down in the lower half, up in
// the upper.
constexpr int all_steps = 4;

// Cells are numbered by their levels, the first element's being the highest digit. A code holds
// the levels of a grid point in its lower half, the first element's lowest, and its index in the
// upper.
struct Neighbours {
    const Cell *cells;      // without neighbours that cannot be nearest to what rounds to the point
    int32_t count;          // of those; as many follow, with all of ggml's neighbours
    const uint32_t *codes;  // a vector may be read from any on
    const uint8_t (*steps)[8];  // the levels of every grid point, each times level_step
};

// The cell of that number with all of ggml's neighbours. A member would be one function for all
// objects, and so of one of them: a static one is each object's own.
static inline const Cell &whole_cell(const Neighbours &grid, int number) {
    return grid.cells[grid.count + number];
}

extern "C" const Neighbours *ggufkit_neighbours(GridName grid);
