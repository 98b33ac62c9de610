// tandem bench hybrid
#pragma once

namespace CLI {
class App;
}

namespace tandem::cli {

struct Invocation;

CLI::App *add_bench_hybrid_command(CLI::App &bench, Invocation &invocation);

}  // namespace tandem::cli
