#include "core/local_groups.hpp"
#include <gtest/gtest.h>
