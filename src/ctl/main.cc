// icachectl: the operator's program. docs/icachectl.md is its reference.
#include "ctl/command_line.h"

int main(int argc, char** argv) { return icache::RunCommandLine(argc, argv); }
