#include "ctl/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace icache {
namespace {

// A verb, "policies diff" as one, with what may follow it.
struct Verb {
  std::string path;  // "" = the program itself
  std::string help;
  std::vector<std::string> words;                          // sub-verbs, then flags
  std::vector<std::pair<std::string, std::string>> flags;  // long name without dashes, help
};

// The flags of `app`, those of its option groups among them.
void AddFlags(const CLI::App& app, Verb* verb, std::vector<std::string>* flags) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags->push_back("--" + name);
      verb->flags.emplace_back(name, option->get_description());
    }
    for (const std::string& name : option->get_snames()) flags->push_back("-" + name);
  }
  for (const CLI::App* group : app.get_subcommands({})) {
    if (group->get_name().empty()) AddFlags(*group, verb, flags);
  }
}

// `inherited` are the flags that the verbs above take, which this one takes too.
void AddVerbs(const CLI::App& app, const std::string& path, const std::vector<std::string>& inherited,
              std::vector<Verb>* verbs) {
  Verb verb{path, app.get_description(), {}, {}};
  std::vector<std::string> flags = inherited;
  AddFlags(app, &verb, &flags);
  std::sort(flags.begin(), flags.end());
  flags.erase(std::unique(flags.begin(), flags.end()), flags.end());
  std::vector<const CLI::App*> subs;
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (!sub->get_name().empty()) subs.push_back(sub);
  }
  for (const CLI::App* sub : subs) verb.words.push_back(sub->get_name());
  verb.words.insert(verb.words.end(), flags.begin(), flags.end());
  verbs->push_back(std::move(verb));
  for (const CLI::App* sub : subs) {
    AddVerbs(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), flags, verbs);
  }
}

std::string Words(const Verb& verb) { return fmt::format("{}", fmt::join(verb.words, " ")); }

// A case of every verb, with the deepest first, over the verbs typed so far.
// Sets the shell's `variable`.
std::string Cases(const std::vector<Verb>& verbs, const char* variable) {
  std::string cases;
  for (auto verb = verbs.rbegin(); verb != verbs.rend(); ++verb) {
    cases += fmt::format("    \"{}\"*) {}=\"{}\" ;;\n", verb->path, variable, Words(*verb));
  }
  return cases;
}

std::string Bash(const std::vector<Verb>& verbs) {
  return "_icachectl() {\n"
         "  local current=\"${COMP_WORDS[COMP_CWORD]}\" typed=\"\" words=\"\" i\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    [[ ${COMP_WORDS[i]} == -* ]] && break\n"
         "    typed=\"${typed:+$typed }${COMP_WORDS[i]}\"\n"
         "  done\n"
         "  case \"$typed\" in\n" +
         Cases(verbs, "words") +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  [[ ${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "}\n"
         "complete -o filenames -F _icachectl icachectl\n";
}

std::string Zsh(const std::vector<Verb>& verbs) {
  return "#compdef icachectl\n"
         "_icachectl() {\n"
         "  local typed=\"\" reply=\"\" word\n"
         "  for word in ${words[2,CURRENT-1]}; do\n"
         "    [[ $word == -* ]] && break\n"
         "    typed=\"${typed:+$typed }$word\"\n"
         "  done\n" +
         std::string("  case \"$typed\" in\n") + Cases(verbs, "reply") +
         "  esac\n"
         "  compadd -- ${=reply} || _files\n"
         "}\n"
         "compdef _icachectl icachectl\n";
}

std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + "'";
}

std::string Fish(const std::vector<Verb>& verbs) {
  std::string script = "complete -c icachectl -e\n";
  std::vector<std::string> top;
  for (const Verb& verb : verbs) {
    if (!verb.path.empty() && verb.path.find(' ') == std::string::npos) top.push_back(verb.path);
  }
  for (const Verb& verb : verbs) {
    const size_t space = verb.path.find(' ');
    std::string condition;
    if (!verb.path.empty()) {
      condition = space == std::string::npos
                      ? fmt::format(" -n '__fish_seen_subcommand_from {}'", verb.path)
                      : fmt::format(" -n '__fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}'",
                                    verb.path.substr(0, space), verb.path.substr(space + 1));
      const std::string parent = space == std::string::npos
                                     ? fmt::format(" -n 'not __fish_seen_subcommand_from {}'", fmt::join(top, " "))
                                     : fmt::format(" -n '__fish_seen_subcommand_from {}'", verb.path.substr(0, space));
      script += fmt::format("complete -c icachectl{} -a {} -d {}\n", parent, verb.path.substr(space + 1),
                            FishQuoted(verb.help));
    }
    for (const auto& [flag, help] : verb.flags) {
      script += fmt::format("complete -c icachectl{} -l {} -d {}\n", condition, flag, FishQuoted(help));
    }
  }
  return script;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  std::vector<Verb> verbs;
  AddVerbs(app, "", {}, &verbs);
  if (shell == "bash") return Bash(verbs);
  if (shell == "zsh") return Zsh(verbs);
  if (shell == "fish") return Fish(verbs);
  return "";
}

}  // namespace icache
