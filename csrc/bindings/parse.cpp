#include "core/parse.hpp"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/module.hpp"
#include "core/parallel.hpp"

namespace py = pybind11;

namespace rewardkit::bindings {
namespace {

constexpr py::ssize_t kRowsPerTask = 64;
constexpr std::int64_t kBytesPerThread = 4 << 20;
constexpr int kMostThreads = 8;

template <class Value, std::size_t N>
Value lookup(const char* argument, const py::handle& text, const std::array<std::pair<const char*, Value>, N>& known) {
  const auto name = py::cast<std::string>(text);
  for (const auto& [key, value] : known) {
    if (name == key) return value;
  }
  throw py::value_error(std::string(argument) + ": unknown value '" + name + "'");
}

constexpr std::array<std::pair<const char*, parse::Role>, parse::kRoles> kRoleNames = {{
    {"think", parse::Role::think},
    {"answer", parse::Role::answer},
    {"confidence", parse::Role::confidence},
    {"analysis", parse::Role::analysis},
    {"other", parse::Role::other},
    {"wrapper", parse::Role::wrapper},
}};
constexpr std::array<std::pair<const char*, parse::StepKind>, 5> kStepNames = {{
    {"block", parse::StepKind::block},
    {"each", parse::StepKind::each},
    {"enter", parse::StepKind::enter},
    {"leave", parse::StepKind::leave},
    {"final", parse::StepKind::final},
}};
constexpr std::array<std::pair<const char*, parse::Mode>, 3> kModeNames = {{
    {"strict", parse::Mode::strict},
    {"lenient", parse::Mode::lenient},
    {"rlcr", parse::Mode::rlcr},
}};
constexpr std::array<std::pair<const char*, parse::Think>, 4> kThinkNames = {{
    {"required", parse::Think::required},
    {"optional", parse::Think::optional},
    {"forbidden", parse::Think::forbidden},
    {"ignore", parse::Think::ignore},
}};
constexpr std::array<std::pair<const char*, bool>, 2> kBadSumNames = {{{"fail", true}, {"renormalise", false}}};

TextView view(PyObject* text) {
  return {PyUnicode_DATA(text), static_cast<std::int64_t>(PyUnicode_GET_LENGTH(text)),
          static_cast<int>(PyUnicode_KIND(text))};
}

std::u32string code_points(const py::handle& object) {
  if (!PyUnicode_Check(object.ptr())) throw py::type_error("expected a string");
  const TextView text = view(object.ptr());
  std::u32string result(static_cast<std::size_t>(text.size), U'\0');
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = PyUnicode_READ(static_cast<unsigned>(text.width), text.data, static_cast<py::ssize_t>(i));
  }
  return result;
}

parse::Tag make_tag(parse::Role role, bool opens, const py::handle& literal) {
  parse::Tag tag{role, opens, false, code_points(literal), {}};
  constexpr std::u32string_view kNumber = U"{i}";
  const std::size_t at = tag.prefix.find(kNumber);
  if (at != std::u32string::npos) {
    tag.numbered = true;
    tag.suffix = tag.prefix.substr(at + kNumber.size());
    tag.prefix.resize(at);
  }
  return tag;
}

parse::Grammar make_grammar(const py::tuple& program) {
  std::vector<parse::Tag> tags;
  for (const py::handle entry : program[0]) {
    const auto tag = py::cast<py::tuple>(entry);
    const parse::Role role = lookup("role", tag[0], kRoleNames);
    tags.push_back(make_tag(role, true, tag[1]));
    tags.push_back(make_tag(role, false, tag[2]));
  }
  std::vector<parse::Step> steps;
  for (const py::handle entry : program[1]) {
    const auto step = py::cast<py::tuple>(entry);
    parse::Step made{lookup("step", step[0], kStepNames), {}};
    for (const py::handle role : py::cast<py::tuple>(step[1])) made.roles.push_back(lookup("role", role, kRoleNames));
    if (made.roles.empty() != (made.kind == parse::StepKind::final))
      throw py::value_error("step: wrong number of roles");
    steps.push_back(std::move(made));
  }
  return parse::Grammar(std::move(tags), std::move(steps));
}

// The texts of a call: the strings are held, so that their memory can be read without the GIL.
class Texts {
 public:
  explicit Texts(const py::object& texts) : held_(py::reinterpret_steal<py::tuple>(PySequence_Tuple(texts.ptr()))) {
    if (!held_) throw py::error_already_set();
    views_.reserve(held_.size());
    for (const py::handle text : held_) {
      if (!PyUnicode_Check(text.ptr())) throw py::type_error("texts: expected strings");
#if PY_VERSION_HEX < 0x030C0000
      if (PyUnicode_READY(text.ptr()) != 0) throw py::error_already_set();
#endif
      views_.push_back(view(text.ptr()));
      bytes_ += views_.back().size * views_.back().width;
    }
  }

  py::ssize_t size() const { return static_cast<py::ssize_t>(views_.size()); }
  const TextView& operator[](py::ssize_t row) const { return views_[static_cast<std::size_t>(row)]; }
  PyObject* string(py::ssize_t row) const { return PyTuple_GET_ITEM(held_.ptr(), row); }
  std::int64_t bytes() const { return bytes_; }

 private:
  py::tuple held_;
  std::vector<TextView> views_;
  std::int64_t bytes_ = 0;
};

struct Call {
  Texts texts;
  parse::Grammar grammar;
  parse::Options options;
  int threads;

  Call(const py::object& strings, const py::tuple& program, const py::str& mode, const py::str& think, int min_answers,
       int max_answers, const py::str& on_bad_sum, double sum_tol, const py::iterable& special_tokens, int thread_count)
      : texts(strings), grammar(make_grammar(program)), threads(thread_count) {
    if (max_answers < 1 || max_answers > parse::kMaxAnswers) throw py::value_error("max_answers: out of range");
    options.mode = lookup("mode", mode, kModeNames);
    options.think = lookup("think", think, kThinkNames);
    options.min_answers = min_answers;
    options.max_answers = max_answers;
    options.fail_on_bad_sum = lookup("on_bad_sum", on_bad_sum, kBadSumNames);
    options.sum_tol = sum_tol;
    for (const py::handle token : special_tokens) {
      options.special_tokens.push_back(code_points(token));
      if (options.special_tokens.back().empty()) options.special_tokens.pop_back();
    }
    if (threads < 1) {
      const std::int64_t worth = texts.bytes() / kBytesPerThread;
      const int processors = static_cast<int>(std::thread::hardware_concurrency());
      threads = static_cast<int>(std::clamp<std::int64_t>(worth, 1, std::clamp(processors, 1, kMostThreads)));
    }
  }

  // Reads all rows without the GIL and hands each reading to `sink(row, reading)`, which must touch its row alone.
  template <class Sink>
  void read(const Sink& sink) const {
    const py::gil_scoped_release release;
    const py::ssize_t rows = texts.size(), tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
    const std::int64_t cost = texts.bytes() / std::max<std::int64_t>(tasks, 1);
    parallel_for(tasks, cost, threads, [&](std::int64_t task) {
      parse::Reading reading;
      const py::ssize_t last = std::min(rows, (task + 1) * kRowsPerTask);
      for (py::ssize_t row = task * kRowsPerTask; row < last; ++row) {
        parse::read(texts[row], grammar, options, reading);
        sink(row, reading);
      }
    });
  }
};

template <class Value>
py::array_t<Value> zeros(std::vector<py::ssize_t> shape) {
  py::array_t<Value> array(std::move(shape));
  std::fill_n(array.mutable_data(), array.size(), Value{});
  return array;
}

struct Cut {
  std::int64_t start, stop;
};

py::object substring(PyObject* text, const Cut& cut) {
  PyObject* made = PyUnicode_Substring(text, cut.start, cut.stop);
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

py::tuple parse_completions(const py::object& texts, const py::tuple& program, const py::str& mode,
                            const py::str& think, int min_answers, int max_answers, const py::str& on_bad_sum,
                            double sum_tol, const py::iterable& special_tokens, int threads) {
  const Call call(texts, program, mode, think, min_answers, max_answers, on_bad_sum, sum_tol, special_tokens, threads);
  const py::ssize_t rows = call.texts.size(), slots = max_answers;
  auto probs = zeros<double>({rows, slots});
  auto mask = zeros<bool>({rows, slots}), has_prob = zeros<bool>({rows, slots});
  auto other = zeros<double>({rows});
  auto wellformed = zeros<bool>({rows});
  std::vector<parse::Reason> reasons(static_cast<std::size_t>(rows));
  std::vector<int> counts(static_cast<std::size_t>(rows));
  std::vector<Cut> answer_cuts(static_cast<std::size_t>(rows * slots)), analysis_cuts(static_cast<std::size_t>(rows));

  double* const prob_data = probs.mutable_data();
  bool* const mask_data = mask.mutable_data();
  bool* const has_prob_data = has_prob.mutable_data();
  double* const other_data = other.mutable_data();
  bool* const wellformed_data = wellformed.mutable_data();
  call.read([&](py::ssize_t row, const parse::Reading& reading) {
    const auto at = static_cast<std::size_t>(row);
    const bool good = reading.wellformed();
    reasons[at] = reading.reason;
    wellformed_data[row] = good;
    if (good || call.options.mode == parse::Mode::rlcr) {  // the released evaluation counts a confidence in any case
      std::copy_n(reading.prob.begin(), reading.slots, prob_data + row * slots);
      std::copy_n(reading.stated.begin(), reading.slots, has_prob_data + row * slots);
      other_data[row] = reading.other;
    }
    if (!good) return;
    counts[at] = reading.answers;
    std::fill_n(mask_data + row * slots, reading.answers, true);
    for (int slot = 0; slot < reading.answers; ++slot) {
      const parse::Piece& piece = reading.answer[static_cast<std::size_t>(slot)];
      answer_cuts[at * static_cast<std::size_t>(slots) + static_cast<std::size_t>(slot)] = {piece.start, piece.stop};
    }
    if (reading.analysis.found()) analysis_cuts[at] = {reading.analysis.start, reading.analysis.stop};
  });

  std::vector<py::str> names;
  for (std::size_t i = 0; i < parse::kReasons; ++i) names.emplace_back(to_string(static_cast<parse::Reason>(i)));
  py::list answers(rows), reason(rows), analysis(rows);
  for (py::ssize_t row = 0; row < rows; ++row) {
    const auto at = static_cast<std::size_t>(row);
    PyObject* const text = call.texts.string(row);
    py::list found(counts[at]);
    for (int slot = 0; slot < counts[at]; ++slot) {
      const Cut& cut = answer_cuts[at * static_cast<std::size_t>(slots) + static_cast<std::size_t>(slot)];
      PyList_SET_ITEM(found.ptr(), slot, substring(text, cut).release().ptr());
    }
    PyList_SET_ITEM(answers.ptr(), row, found.release().ptr());
    PyList_SET_ITEM(reason.ptr(), row, py::object(names[static_cast<std::size_t>(reasons[at])]).release().ptr());
    PyList_SET_ITEM(analysis.ptr(), row, substring(text, analysis_cuts[at]).release().ptr());
  }
  return py::make_tuple(answers, probs, mask, has_prob, other, wellformed, reason, analysis);
}

py::array_t<std::int64_t> parse_spans(const py::object& texts, const py::tuple& program, const py::str& mode,
                                      const py::str& think, int min_answers, int max_answers, const py::str& on_bad_sum,
                                      double sum_tol, const py::iterable& special_tokens, int threads) {
  const Call call(texts, program, mode, think, min_answers, max_answers, on_bad_sum, sum_tol, special_tokens, threads);
  const py::ssize_t slots = max_answers, pieces = 3 + 2 * slots;
  static_assert(sizeof(parse::Piece) == 4 * sizeof(std::int64_t));
  py::array_t<std::int64_t> result(std::vector<py::ssize_t>{call.texts.size(), pieces, 4});
  std::int64_t* const data = result.mutable_data();
  call.read([&](py::ssize_t row, const parse::Reading& reading) {
    std::int64_t* at = data + row * pieces * 4;
    const auto put = [&](const parse::Piece& piece) {
      for (const std::int64_t value : {piece.start, piece.stop, piece.outer_start, piece.outer_stop}) *at++ = value;
    };
    put(reading.think);
    put(reading.analysis);
    put(reading.other_piece);
    for (py::ssize_t i = 0; i < slots; ++i) put(reading.answer[static_cast<std::size_t>(i)]);
    for (py::ssize_t i = 0; i < slots; ++i) put(reading.confidence[static_cast<std::size_t>(i)]);
  });
  return result;
}

}  // namespace

void bind_parse(py::module_& module) {
  const auto bind = [&](const char* name, auto function, const char* doc) {
    module.def(name, function, doc, py::arg("texts"), py::arg("program"), py::kw_only(), py::arg("mode"),
               py::arg("think"), py::arg("min_answers"), py::arg("max_answers"), py::arg("on_bad_sum"),
               py::arg("sum_tol"), py::arg("special_tokens"), py::arg("threads") = 1);
  };
  bind("parse_completions", &parse_completions,
       "Reads completions; the result holds the fields of rewardkit.types.Forecast in their order.");
  bind("parse_spans", &parse_spans, "Where the pieces stand: int64 [B, 3 + 2 K, 4].");
}

}  // namespace rewardkit::bindings
