#include <cctype>
#include <sstream>
#include <utility>

#include "common/reference/reference.hpp"

namespace tools {
namespace {

constexpr const char* kExamples = "Such as";
constexpr size_t kMostLabel = 24;  // maximum letters of a label at the start of a line that becomes a heading

// Escapes text for roff: the dash of an option is not a hyphen, and quotes in commands are not typographic
// quotes.
std::string roff(const std::string& text) {
  std::string out;
  bool in_code = false;
  for (const char letter : text) {
    if (letter == '`') {
      out += in_code ? "\\fR" : "\\fB";
      in_code = !in_code;
    } else if (letter == '\\' || letter == '-') {
      out += letter == '-' ? "\\-" : "\\e";
    } else {
      out += letter == '\''  ? "\\(aq"
             : letter == '^' ? "\\(ha"
             : letter == '~' ? "\\(ti"
                             : std::string(1, letter);
    }
  }
  return out;
}

// roff takes a line that starts with a dot as a request, and mandoc warns about lines of more than 80 bytes.
std::string line_of(const std::string& text) {
  constexpr size_t kMost = 79;
  std::string out, line;
  std::istringstream words(roff(text));
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kMost) out += std::exchange(line, "") + "\n";
    line += line.empty() ? (word.starts_with('.') ? "\\&" : "") : " ";
    line += word;
  }
  return out + line + "\n";
}

std::string upper(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns "Exit code" for "Exit code: 0 fine", and an empty text for a line without such a label.
std::string label_of(const std::string& line) {
  const size_t end = line.find(": ");
  const bool is_label = end != std::string::npos && end < kMostLabel &&
                        std::isupper(static_cast<unsigned char>(line[0])) != 0 &&
                        line.find_first_not_of("abcdefghijklmnopqrstuvwxyz ", 1) == end;
  return is_label ? line.substr(0, end) : std::string();
}

// Man pages use conventional names for common sections. Headings of sections are in upper case, and headings
// of subsections are not.
std::string heading_of(const std::string& label, const std::string& section) {
  const std::string name = label == kExamples ? "Examples" : label == "Exit code" ? "Exit status" : label;
  return roff(section == ".SH" ? upper(name) : name);
}

std::string capital(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string example(const std::string& line) { return ".nf\n.RS 4\n" + roff(line) + "\n.RE\n.fi\n"; }

// Converts plain text, in which a line with a label starts a new section. `section` is .SH or .SS.
std::string text_of(const std::string& text, const std::string& section) {
  std::string out, label, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty())
      out += (label.empty() ? ".PP\n" : "") + line_of(capital(std::exchange(paragraph, "")));
  };
  for (const std::string& line : lines_in(text)) {
    const std::string found = label_of(line);
    const bool ends_examples = label == kExamples && !line.starts_with(' ');
    if (line.empty() || !found.empty() || ends_examples) {
      end_paragraph();
      label = found;
    }
    if (line.empty()) continue;
    if (!found.empty()) out += section + " " + heading_of(found, section) + "\n";
    const std::string rest = line.substr(found.empty() ? line.find_first_not_of(' ') : found.size() + 2);
    if (label == kExamples)
      out += example(rest);
    else
      paragraph += (paragraph.empty() ? "" : " ") + rest;
  }
  end_paragraph();
  return out;
}

std::string option_text(const OptionOutline& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ", ") +
             (option.is_positional ? "\\fI" + roff(name) + "\\fR" : "\\fB" + roff(name) + "\\fR");
  if (!option.is_positional && !option.value.empty()) names += " \\fI" + roff(option.value) + "\\fR";
  std::string help = option.help;
  // If the help text does not already mention the choices, they are added.
  for (const std::string& word : option.choices)
    if (option.help.find(word) == std::string::npos) {
      help += ". One of: " + CLI::detail::join(option.choices, ", ");
      break;
    }
  if (help.ends_with('.')) help.pop_back();
  return ".TP\n" + names + "\n" + line_of(help + (option.is_required ? " (required)" : "") + ".");
}

std::string options_text(const CommandOutline& command) {
  std::string out;
  for (const bool positional : {true, false})
    for (const OptionOutline& option : command.options)
      if (option.is_positional == positional) out += option_text(option);
  return out;
}

std::string synopsis(const CommandOutline& command) {
  std::string out = ".nf\n";
  for (const std::string& line : command.usage)
    out += "\\fB" + roff(command.name) + "\\fR" + roff(line.substr(command.name.size())) + "\n";
  return out + ".fi\n";
}

// CLI11 gives a command without a footer the footer of its parent, which the parent's section already shows.
std::string section_of(const CommandOutline& command, const std::string& parent_footer) {
  std::string out = ".SH " + upper(roff(command.name)) + "\n" + line_of(command.summary + ".") + ".PP\n" +
                    synopsis(command) + options_text(command);
  if (command.footer != parent_footer) out += text_of(command.footer, ".SS");
  for (const CommandOutline& one : command.commands) out += section_of(one, command.footer);
  return out;
}

std::string list_of_commands(const CommandOutline& program) {
  std::string out = ".SH COMMANDS\n";
  for (const CommandOutline& one : program.commands)
    out += ".TP\n\\fB" + roff(one.last_name()) + "\\fR\n" + line_of(one.summary + ".");
  return out;
}

}  // namespace

std::string man_page(const CommandOutline& program, const std::string& version, const std::string& date) {
  std::string out = ".TH " + upper(program.name) + " 1 " + date + " \"" + version + "\"\n";
  out += ".SH NAME\n" + program.name + " \\- " + roff(program.summary) + "\n";
  out += ".SH SYNOPSIS\n" + synopsis(program);
  if (!program.details.empty())
    out += ".SH DESCRIPTION\n" + text_of(program.details, ".SH").substr(sizeof ".PP");
  out += ".SH OPTIONS\n" + options_text(program);
  if (!program.commands.empty()) out += list_of_commands(program);
  for (const CommandOutline& one : program.commands) out += section_of(one, program.footer);
  return out + text_of(program.footer, ".SH");
}

}  // namespace tools
