#include "neighbours.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "types/grid_codes.hpp"

namespace {

struct Grid {
    const uint16_t *codes;
    int count;
    int dimensions, levels;
    int shells;   // how many different distances ggml includes
    bool rounds;  // a point is sought for what rounds to it, so that some neighbours are idle
};

Grid grid_named(GridName name) {
    switch (name) {
    case grid_iq2_xxs: return {iq2_xxs_codes, 256, 8, 3, 2, true};
    case grid_iq2_xs: return {iq2_xs_codes, 512, 8, 3, 2, true};
    case grid_iq2_s: return {iq2_s_codes, 1024, 8, 3, 1, true};
    case grid_iq1: return {iq1_codes, 2048, 8, 3, 3, false};
    case grid_iq3_xxs: return {iq3_xxs_codes, 256, 4, 8, 2, true};
    default: return {iq3_s_codes, 512, 4, 8, 3, true};
    }
}

using Levels = std::array<int8_t, 8>;

constexpr size_t most_lanes = 16;

int power(int base, int exponent) { return exponent == 0 ? 1 : base * power(base, exponent - 1); }

class Builder {
public:
    explicit Builder(const Grid &grid)
        : grid_(grid), half_(power(grid.levels, grid.dimensions / 2)) {
        const int bits = grid.levels == 3 ? 2 : 3;
        for (int i = 0; i < grid.count; ++i) {
            Levels levels{};
            for (int k = 0; k < grid.dimensions; ++k) {
                levels[k] = static_cast<int8_t>(grid.codes[i] >> bits * k & ((1 << bits) - 1));
            }
            points_.push_back(levels);
        }
        for (const Levels &levels : points_) {
            steps.emplace_back();
            for (int k = 0; k < 8; ++k) {
                steps.back()[k] = static_cast<uint8_t>(levels[k] * level_step);
            }
        }
        upper_ = distances_from_halves(0);
        lower_ = distances_from_halves(grid.dimensions / 2);
    }

    void build() {
        const int count = half_ * half_;
        std::vector<std::vector<int>> near;
        for (int cell = 0; cell < count; ++cell) near.push_back(nearest(cell));
        codes.resize(most_lanes);  // early fetches may read before the first
        // Cells that are read most are stored together, for the caches.
        for (int cell = 0; cell < count; ++cell) {
            const std::vector<int> some =
                grid_.rounds ? without_idle(levels_of(cell), near[cell]) : near[cell];
            const bool steps =
                grid_.rounds && grid_.levels == 3 && keep_steps(levels_of(cell), some);
            keep(cell, some);
            if (steps) cells.back().rounds = all_steps;
        }
        for (int cell = 0; cell < count; ++cell) keep(cell, near[cell]);
        codes.resize(codes.size() + most_lanes);
    }

    std::vector<Cell> cells;
    std::vector<uint32_t> codes;
    std::vector<std::array<uint8_t, 8>> steps;

private:
    Levels levels_of(int cell) const {
        Levels levels{};
        for (int k = grid_.dimensions - 1; k >= 0; --k, cell /= grid_.levels) {
            levels[k] = static_cast<int8_t>(cell % grid_.levels);
        }
        return levels;
    }

    // Squared distances of all grid points from all points, in half of the dimensions.
    std::vector<uint8_t> distances_from_halves(int first) const {
        std::vector<uint8_t> distances;
        const int dimensions = grid_.dimensions / 2;
        for (int half = 0; half < half_; ++half) {
            const Levels levels = levels_of(half);  // in the last dimensions
            for (const Levels &point : points_) {
                int sum = 0;
                for (int k = 0; k < dimensions; ++k) {
                    const int apart = levels[dimensions + k] - point[first + k];
                    sum += apart * apart;
                }
                distances.push_back(static_cast<uint8_t>(sum));
            }
        }
        return distances;
    }

    void measure(int cell) {
        const uint8_t *upper = &upper_[cell / half_ * grid_.count];
        const uint8_t *lower = &lower_[cell % half_ * grid_.count];
        distances_.resize(grid_.count);
        for (int i = 0; i < grid_.count; ++i) {
            distances_[i] = static_cast<uint8_t>(upper[i] + lower[i]);
        }
    }

    // The grid points of the nearest shells, by distance and index; a point on the grid alone.
    std::vector<int> nearest(int cell) {
        measure(cell);
        std::array<bool, 256> occurs{};
        for (uint8_t distance : distances_) occurs[distance] = true;
        std::vector<int> members;
        const int shells = occurs[0] ? 1 : grid_.shells;
        for (int distance = 0, shell = 0; distance < 256 && shell < shells; ++distance) {
            if (!occurs[distance]) continue;
            ++shell;
            for (int i = 0; i < grid_.count; ++i) {
                if (distances_[i] == distance) members.push_back(i);
            }
        }
        return members;
    }

    // A neighbour in the box between the point and a later neighbour is never farther from what
    // rounds to the point, in any dimension and so not in ggml's sum either.
    std::vector<int> without_idle(const Levels &center, const std::vector<int> &near) const {
        std::vector<int> needed;
        for (int candidate : near) {
            const bool idle = std::any_of(needed.begin(), needed.end(), [&](int earlier) {
                return in_box(center, points_[earlier], points_[candidate]);
            });
            if (!idle) needed.push_back(candidate);
        }
        return needed;
    }

    bool in_box(const Levels &center, const Levels &inner, const Levels &outer) const {
        for (int k = 0; k < grid_.dimensions; ++k) {
            const int a = inner[k] - center[k], b = outer[k] - center[k];
            if (a > 0 ? b < a : (a < 0 && b > a)) return false;
        }
        return true;
    }

    void keep(int cell, const std::vector<int> &near) {
        // Short lists are rare where points have many elements.
        const size_t least = grid_.dimensions == 8 ? 2 : 1;
        const size_t rounds = std::min<size_t>(std::max((near.size() + 3) / 4, least), 3);
        cells.push_back({static_cast<uint32_t>(codes.size()), code_of(near[0]),
                         static_cast<uint16_t>(near.size()), points_[near[0]] == levels_of(cell),
                         static_cast<uint8_t>(near.size() == 1 ? 0 : rounds)});
        for (int point : near) codes.push_back(code_of(point));
    }

    // Adds the entries before the codes if these neighbours are all_steps.
    bool keep_steps(const Levels &center, const std::vector<int> &near) {
        std::vector<uint32_t> steps = {code_of(center, 0)};
        size_t members = 0;
        for (int k = 0; k < grid_.dimensions; ++k) {
            steps.push_back(0);
            for (int up : {0, 1}) {
                Levels levels = center;
                levels[k] = static_cast<int8_t>(levels[k] + (up ? 1 : -1));
                if (levels[k] < 0 || levels[k] >= grid_.levels) continue;
                const auto point = std::find_if(near.begin(), near.end(),
                                                [&](int i) { return points_[i] == levels; });
                if (point == near.end()) return false;
                steps.back() |= static_cast<uint32_t>(*point) << 16 * up;
                ++members;
            }
        }
        if (near.size() != members) return false;
        codes.insert(codes.end(), steps.begin(), steps.end());
        return true;
    }

    uint32_t code_of(int point) const { return code_of(points_[point], point); }

    uint32_t code_of(const Levels &levels, int point) const {
        uint32_t code = static_cast<uint32_t>(point) << 16;
        for (int k = 0; k < grid_.dimensions; ++k) {
            code |= static_cast<uint32_t>(levels[k]) << 16 / grid_.dimensions * k;
        }
        return code;
    }

    Grid grid_;
    int half_;
    std::vector<Levels> points_;
    std::vector<uint8_t> upper_, lower_, distances_;
};

struct Made {
    explicit Made(GridName grid) : builder(grid_named(grid)) {
        builder.build();
        view = {builder.cells.data(), static_cast<int32_t>(builder.cells.size() / 2),
                builder.codes.data(), reinterpret_cast<const uint8_t(*)[8]>(builder.steps.data())};
    }
    Builder builder;
    Neighbours view;
};

}  // namespace

const Neighbours *ggufkit_neighbours(GridName grid) {
    static std::mutex mutex;
    static std::map<GridName, std::unique_ptr<const Made>> all;
    const std::lock_guard<std::mutex> lock(mutex);
    auto &entry = all[grid];
    if (!entry) entry = std::make_unique<const Made>(grid);
    return &entry->view;
}
