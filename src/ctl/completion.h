// Completion: scripts with which shells complete icachectl's verbs and flags, made from the command line itself.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace icache {

// For "bash", "zsh" or "fish"; "" for any other shell.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace icache
