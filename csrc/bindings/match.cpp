#include "core/match.hpp"

#include <pybind11/numpy.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/module.hpp"
#include "core/assignment.hpp"

namespace py = pybind11;

namespace rewardkit::bindings {
namespace {

// ---- errors
// -----------------------------------------------------------------------------------------------------------

[[noreturn]] void raise(const py::object& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

[[noreturn]] void raise_invalid(const std::string& argument, const std::string& expected, const py::object& got) {
  const py::object cls = py::module_::import("rewardkit.errors").attr("InvalidArgumentError");
  raise(cls(argument, py::arg("expected") = expected, py::arg("got") = got));
}

template <class Choice, std::size_t N>
Choice choice(const char* kind, const std::string& name, const std::pair<const char*, Choice> (&known)[N]) {
  py::list names;
  for (const auto& [text, value] : known) {
    if (name == text) return value;
    names.append(text);
  }
  raise(py::module_::import("rewardkit.errors").attr("UnknownNameError")(kind, name, names));
}

constexpr std::pair<const char*, MatchMode> kModes[] = {{"official", MatchMode::official},
                                                        {"numeric_safe", MatchMode::numeric_safe}};
constexpr std::pair<const char*, Matcher> kMatchers[] = {
    {"exact", Matcher::exact}, {"token_f1", Matcher::token_f1}, {"fuzzy", Matcher::fuzzy}};
constexpr std::pair<const char*, Linkage> kLinkages[] = {{"union", Linkage::join}, {"leader", Linkage::leader}};

std::string indexed(const char* name, Py_ssize_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

// ---- texts
// ------------------------------------------------------------------------------------------------------------

// The items of a list, a tuple or a flat array, alive as long as this is.
struct Items {
  py::object keep;
  PyObject** items = nullptr;
  Py_ssize_t size = 0;

  // The name of the argument is made only for an error.
  template <class Name>
  Items(PyObject* value, const Name& name) {
    if (PyList_Check(value) || PyTuple_Check(value)) {
      keep = py::reinterpret_borrow<py::object>(value);
    } else if (py::isinstance<py::array>(value) && py::reinterpret_borrow<py::array>(value).ndim() == 1) {
      keep = py::reinterpret_borrow<py::object>(value).attr("tolist")();
    } else {
      raise_invalid(name(), "a list, tuple or flat array", py::reinterpret_borrow<py::object>(value));
    }
    items = PySequence_Fast_ITEMS(keep.ptr());
    size = PySequence_Fast_GET_SIZE(keep.ptr());
  }
  // Fetches what the rows after i will need, one step further for each nearer one: lists, their items, the items'
  // items.
  void prefetch(Py_ssize_t i) const {
    if (i + 8 < size) __builtin_prefetch(items[i + 8]);
    if (i + 6 < size && is_list(items[i + 6])) __builtin_prefetch(PySequence_Fast_ITEMS(items[i + 6]));
    if (i + 4 < size) for_items(items[i + 4], [](PyObject* item) { __builtin_prefetch(item); });
    if (i + 3 < size) {
      for_items(items[i + 3], [](PyObject* item) {
        if (is_list(item)) __builtin_prefetch(PySequence_Fast_ITEMS(item));
      });
    }
    if (i + 2 < size) {
      for_items(items[i + 2],
                [](PyObject* item) { for_items(item, [](PyObject* text) { __builtin_prefetch(text); }); });
    }
  }

  static bool is_list(PyObject* value) { return PyList_Check(value) || PyTuple_Check(value); }

 private:
  template <class Visit>
  static void for_items(PyObject* list, const Visit& visit) {
    constexpr Py_ssize_t kMost = 16;
    if (!is_list(list)) return;
    PyObject** const inner = PySequence_Fast_ITEMS(list);
    const Py_ssize_t count = std::min(PySequence_Fast_GET_SIZE(list), kMost);
    for (Py_ssize_t k = 0; k < count; ++k) visit(inner[k]);
  }
};

// Python strings as they lie in memory. Each is kept alive, since other threads may change the lists while the GIL is
// free.
class Texts {
 public:
  explicit Texts(std::size_t expected) {
    texts_.reserve(expected);
    objects_.reserve(expected);
  }
  ~Texts() { clear(); }
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;

  template <class Name>
  void add(PyObject* object, const Name& name) {
    if (!PyUnicode_Check(object)) raise_invalid(name(), "a string", py::reinterpret_borrow<py::object>(object));
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(object) != 0) throw py::error_already_set();
#endif
    AnswerText text;
    text.data = PyUnicode_DATA(object);
    text.size = static_cast<std::size_t>(PyUnicode_GET_LENGTH(object));
    text.width = static_cast<std::uint8_t>(PyUnicode_KIND(object));
    text.ascii = PyUnicode_IS_ASCII(object) != 0;
    ascii_ = ascii_ && text.ascii;
    Py_INCREF(object);
    objects_.push_back(object);
    texts_.push_back(text);
  }
  void clear() {
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      if (i + 16 < objects_.size()) __builtin_prefetch(objects_[i + 16]);
      Py_DECREF(objects_[i]);
    }
    objects_.clear();
    texts_.clear();
    ascii_ = true;
  }
  void reserve(std::size_t size) {
    texts_.reserve(size);
    objects_.reserve(size);
  }
  const AnswerText* data() const { return texts_.data(); }
  std::size_t size() const { return texts_.size(); }
  bool ascii() const { return ascii_; }

 private:
  std::vector<AnswerText> texts_;
  std::vector<PyObject*> objects_;
  bool ascii_ = true;
};

// ---- tables
// -----------------------------------------------------------------------------------------------------------

// Made once, when the first text beyond ASCII arrives; never freed, since threads may still read at exit.
const LowerTable& lower_table() {
  static const LowerTable* table = nullptr;  // guarded by the GIL
  if (table == nullptr) {
    auto made = std::make_unique<LowerTable>();
    const auto built = py::module_::import("rewardkit.reference.characters").attr("official_table")().cast<py::tuple>();
    const auto entries = built[0].cast<py::array_t<std::uint32_t, py::array::c_style>>();
    made->entries.assign(entries.data(), entries.data() + entries.size());
    for (const auto& [code, lower] : built[1].cast<py::dict>()) {
      std::vector<char32_t> parts;
      for (const auto part : lower.cast<py::str>()) parts.push_back(PyUnicode_READ_CHAR(part.ptr(), 0));
      made->longer.emplace_back(static_cast<char32_t>(code.cast<std::uint32_t>()), std::move(parts));
    }
    if (table == nullptr) table = made.release();
  }
  return *table;
}

const FoldTable& fold_table() {
  static const FoldTable* table = nullptr;  // guarded by the GIL
  if (table == nullptr) {
    auto made = std::make_unique<FoldTable>();
    const auto built = py::module_::import("rewardkit.reference.characters").attr("folding_table")().cast<py::tuple>();
    const auto entries = built[0].cast<py::array_t<std::uint32_t, py::array::c_style>>();
    const auto pool = built[1].cast<py::array_t<std::uint32_t, py::array::c_style>>();
    const auto classes = built[2].cast<py::array_t<std::uint8_t, py::array::c_style>>();
    const auto combining = built[3].cast<py::array_t<std::uint8_t, py::array::c_style>>();
    made->entries.assign(entries.data(), entries.data() + entries.size());
    made->pool.assign(pool.data(), pool.data() + pool.size());
    made->classes.assign(classes.data(), classes.data() + classes.size());
    made->combining.assign(combining.data(), combining.data() + combining.size());
    if (table == nullptr) table = made.release();
  }
  return *table;
}

// ---- arguments
// --------------------------------------------------------------------------------------------------------

MatchOptions read_options(const std::string& matcher, const std::string& mode, double theta, std::int64_t max_extra,
                          bool yes_no, bool split_cjk) {
  MatchOptions options;
  options.mode = choice("mode", mode, kModes);
  options.matcher = choice("matcher", matcher, kMatchers);
  if (!(theta > 0 && theta <= 1)) raise_invalid("theta", "a number in (0, 1]", py::float_(theta));
  if (max_extra < 0) raise_invalid("max_extra", "a number of tokens, 0 or more", py::int_(max_extra));
  options.theta = theta;
  options.max_extra = static_cast<std::size_t>(max_extra);
  options.yes_no = yes_no;
  options.split_cjk = split_cjk && options.matcher != Matcher::exact;
  return options;
}

void need_tables(MatchOptions* options, bool ascii) {
  if (ascii) return;
  if (options->mode == MatchMode::official) {
    options->lower = &lower_table();
  } else {
    options->fold = &fold_table();
  }
}

// A string, or a list of aliases.
template <class Name>
void add_aliases(PyObject* entry, Texts* texts, const Name& name) {
  if (PyUnicode_Check(entry)) {
    texts->add(entry, name);
    return;
  }
  const Items aliases(entry, name);
  if (aliases.size == 0)
    raise_invalid(name(), "a string or at least one alias", py::reinterpret_borrow<py::object>(entry));
  for (Py_ssize_t i = 0; i < aliases.size; ++i) {
    texts->add(aliases.items[i], [&] { return name() + "[" + std::to_string(i) + "]"; });
  }
}

struct ReadAnswers {
  explicit ReadAnswers(const py::object& answers) : texts(0) {
    const Items rows(answers.ptr(), [] { return std::string("answers"); });
    begins.reserve(static_cast<std::size_t>(rows.size) + 1);
    begins.push_back(0);
    for (Py_ssize_t b = 0; b < rows.size; ++b) {
      rows.prefetch(b);
      const auto name = [b] { return indexed("answers", b); };
      const Items row(rows.items[b], name);
      for (Py_ssize_t k = 0; k < row.size; ++k) {
        texts.add(row.items[k], [&] { return name() + "[" + std::to_string(k) + "]"; });
      }
      begins.push_back(static_cast<std::int64_t>(texts.size()));
      width = std::max(width, row.size);
      if (b == 0) texts.reserve(static_cast<std::size_t>(row.size) * static_cast<std::size_t>(rows.size));
    }
  }
  TextRows rows() const { return {texts.data(), begins.data()}; }
  std::size_t count() const { return begins.size() - 1; }

  Texts texts;
  std::vector<std::int64_t> begins;
  Py_ssize_t width = 0;
};

// The golds of each row. `kind` "nested" reads golds as lists of aliases, as they stand in types.References; another
// kind reads what types.References.of takes, by its rules: whatever is not plainly right is left to it to refuse or to
// convert.
struct ReadGolds {
  ReadGolds(const py::object& golds, std::size_t count, const py::object& kind) : texts(0) {
    const bool nested = py::isinstance<py::str>(kind) && kind.cast<std::string>() == "nested";
    if (!nested) {
      if (read_plain(golds, count, kind)) return;
      const py::object references = py::module_::import("rewardkit.types").attr("References");
      source = references.attr("of")(golds, py::arg("gold_kind") = kind, py::arg("rows") = count).attr("golds");
      texts.clear();
    }
    read_nested(nested ? golds : source, count);
  }
  GoldRows view() const { return {{texts.data(), begins.data()}, rows.data()}; }

  py::object source;
  Texts texts;
  std::vector<std::int64_t> begins, rows;
  Py_ssize_t height = 0;

 private:
  void end_gold() { begins.push_back(static_cast<std::int64_t>(texts.size())); }
  void end_row() {
    const auto golds = static_cast<std::int64_t>(begins.size()) - 1;
    height = std::max(height, static_cast<Py_ssize_t>(golds - rows.back()));
    rows.push_back(golds);
  }
  void start(Py_ssize_t count) {
    rows.assign(1, 0);
    begins.assign(1, 0);
    height = 0;
    rows.reserve(static_cast<std::size_t>(count) + 1);
  }

  void read_nested(const py::object& golds, std::size_t count) {
    const Items entries(golds.ptr(), [] { return std::string("golds"); });
    if (static_cast<std::size_t>(entries.size) != count) {
      raise_invalid("golds", std::to_string(count) + " entries, one per row",
                    py::str(std::to_string(entries.size) + " entries"));
    }
    start(entries.size);
    for (Py_ssize_t b = 0; b < entries.size; ++b) {
      entries.prefetch(b);
      const auto name = [b] { return indexed("golds", b); };
      const Items row(entries.items[b], name);
      for (Py_ssize_t g = 0; g < row.size; ++g) {
        add_aliases(row.items[g], &texts, name);
        end_gold();
      }
      end_row();
    }
  }

  static bool is_list(PyObject* value) { return Items::is_list(value); }
  bool add_plain(PyObject* alias) {
    if (!PyUnicode_Check(alias) || PyUnicode_GET_LENGTH(alias) == 0 ||
        Py_UNICODE_ISSPACE(PyUnicode_READ_CHAR(alias, 0))) {
      return false;
    }
    texts.add(alias, [] { return std::string(); });
    return true;
  }

  // False where an entry is not plainly a string, or a list or tuple of strings or of lists of strings, with text in
  // each.
  bool read_plain(const py::object& golds, std::size_t count, const py::object& kind) {
    const std::string name = kind.is_none() ? "" : py::isinstance<py::str>(kind) ? kind.cast<std::string>() : "?";
    if ((name != "" && name != "aliases" && name != "set") || !is_list(golds.ptr())) return false;
    const Items entries(golds.ptr(), [] { return std::string("references"); });
    if (static_cast<std::size_t>(entries.size) != count) return false;
    start(static_cast<Py_ssize_t>(count));
    for (std::size_t b = 0; b < count; ++b) {
      entries.prefetch(static_cast<Py_ssize_t>(b));
      if (!read_plain_row(entries.items[b], name)) return false;
      if (b == 0) {  // rows are often alike
        texts.reserve(texts.size() * count);
        begins.reserve(begins.size() * count + 1);
      }
    }
    return true;
  }

  bool read_plain_row(PyObject* entry, const std::string& kind) {
    if (PyUnicode_Check(entry)) {
      if (!add_plain(entry)) return false;
      end_gold();
      end_row();
      return true;
    }
    if (!is_list(entry) || PySequence_Fast_GET_SIZE(entry) == 0) return false;
    PyObject** const items = PySequence_Fast_ITEMS(entry);
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(entry);
    const bool flat = std::all_of(items, items + size, [](PyObject* item) { return PyUnicode_Check(item) != 0; });
    if (flat ? kind.empty() && size > 1 : kind == "aliases" && size > 1) return false;
    const bool one_gold = flat && kind != "set";
    for (Py_ssize_t g = 0; g < size; ++g) {
      if (PyUnicode_Check(items[g])) {
        if (!add_plain(items[g])) return false;
      } else {
        if (!is_list(items[g]) || PySequence_Fast_GET_SIZE(items[g]) == 0) return false;
        PyObject** const aliases = PySequence_Fast_ITEMS(items[g]);
        if (!std::all_of(aliases, aliases + PySequence_Fast_GET_SIZE(items[g]),
                         [this](PyObject* alias) { return add_plain(alias); })) {
          return false;
        }
      }
      if (!one_gold) end_gold();
    }
    if (one_gold) end_gold();
    end_row();
    return true;
  }
};

py::array_t<double> pairs(const py::object& predictions, const py::object& references, MatchOptions options,
                          int threads) {
  const Items given(predictions.ptr(), [] { return std::string("predictions"); });
  const Items named(references.ptr(), [] { return std::string("references"); });
  if (given.size != named.size) {
    raise_invalid("references", std::to_string(given.size) + " entries, one per prediction",
                  py::str(std::to_string(named.size) + " entries"));
  }
  const auto count = static_cast<std::size_t>(given.size);
  Texts texts(count), aliases(count);
  for (Py_ssize_t i = 0; i < given.size; ++i) {
    given.prefetch(i);
    texts.add(given.items[i], [i] { return indexed("predictions", i); });
  }
  std::vector<std::int64_t> begins;
  begins.reserve(count + 1);
  begins.push_back(0);
  for (Py_ssize_t i = 0; i < named.size; ++i) {
    named.prefetch(i);
    add_aliases(named.items[i], &aliases, [i] { return indexed("references", i); });
    begins.push_back(static_cast<std::int64_t>(aliases.size()));
  }
  need_tables(&options, texts.ascii() && aliases.ascii());
  py::array_t<double> scores(given.size);
  double* const out = scores.mutable_data();
  {
    py::gil_scoped_release release;
    match_pairs(texts.data(), {aliases.data(), begins.data()}, count, options, threads, out);
  }
  return scores;
}

py::array_t<double> matrix(const py::object& answers, const py::object& golds, MatchOptions options, int threads) {
  const ReadAnswers given(answers);
  const ReadGolds named(golds, given.count(), py::str("nested"));
  need_tables(&options, given.texts.ascii() && named.texts.ascii());
  py::array_t<double> scores({static_cast<Py_ssize_t>(given.count()), given.width, named.height});
  double* const out = scores.mutable_data();
  {
    py::gil_scoped_release release;
    match_matrix(given.rows(), named.view(), given.count(), static_cast<std::size_t>(given.width),
                 static_cast<std::size_t>(named.height), options, threads, out);
  }
  return scores;
}

py::tuple sets(const py::object& answers, const py::object& golds, MatchOptions options, bool distinct,
               const py::object& kind, int threads) {
  const ReadAnswers given(answers);
  const ReadGolds named(golds, given.count(), kind);
  need_tables(&options, given.texts.ascii() && named.texts.ascii());
  const auto count = static_cast<Py_ssize_t>(given.count());
  py::array_t<bool> correct({count, given.width}), found({count, named.height});
  py::array_t<std::int64_t> golds_of(count);
  for (Py_ssize_t b = 0; b < count; ++b) {
    const auto i = static_cast<std::size_t>(b);
    golds_of.mutable_data()[b] = named.rows[i + 1] - named.rows[i];
  }
  auto* const correct_data = reinterpret_cast<std::uint8_t*>(correct.mutable_data());
  auto* const found_data = reinterpret_cast<std::uint8_t*>(found.mutable_data());
  {
    py::gil_scoped_release release;
    match_sets(given.rows(), named.view(), given.count(), static_cast<std::size_t>(given.width),
               static_cast<std::size_t>(named.height), options, distinct, threads, correct_data, found_data);
  }
  return py::make_tuple(correct, found, golds_of);
}

py::array_t<std::int64_t> classes(const py::object& answers, MatchOptions options, Linkage linkage, int threads) {
  const ReadAnswers given(answers);
  need_tables(&options, given.texts.ascii());
  py::array_t<std::int64_t> result({static_cast<Py_ssize_t>(given.count()), given.width});
  std::int64_t* const out = result.mutable_data();
  {
    py::gil_scoped_release release;
    answer_classes(given.rows(), given.count(), static_cast<std::size_t>(given.width), options, linkage, threads, out);
  }
  return result;
}

py::tuple assign(const py::object& equal, bool distinct) {
  if (!py::isinstance<py::array_t<bool>>(equal) || equal.cast<py::array>().ndim() != 3) {
    raise_invalid("equal", "a bool array [B, K, M]", equal);
  }
  const auto relation = equal.cast<py::array_t<bool, py::array::c_style | py::array::forcecast>>();
  const Py_ssize_t count = relation.shape(0), width = relation.shape(1), height = relation.shape(2);
  py::array_t<bool> correct({count, width}), found({count, height});
  const auto* const in = reinterpret_cast<const std::uint8_t*>(relation.data());
  auto* const correct_data = reinterpret_cast<std::uint8_t*>(correct.mutable_data());
  auto* const found_data = reinterpret_cast<std::uint8_t*>(found.mutable_data());
  {
    py::gil_scoped_release release;
    for (Py_ssize_t b = 0; b < count; ++b) {
      assign_credit(in + b * width * height, static_cast<std::size_t>(width), static_cast<std::size_t>(height),
                    distinct, correct_data + b * width, found_data + b * height);
    }
  }
  return py::make_tuple(correct, found);
}

py::list normal_forms(const py::object& texts, const std::string& mode_name) {
  MatchOptions options;
  options.mode = choice("mode", mode_name, kModes);
  const Items items(texts.ptr(), [] { return std::string("texts"); });
  Texts read(static_cast<std::size_t>(items.size));
  for (Py_ssize_t i = 0; i < items.size; ++i) read.add(items.items[i], [i] { return indexed("texts", i); });
  need_tables(&options, read.ascii());
  TokenStore store;
  std::string form;
  py::list forms;
  for (std::size_t i = 0; i < read.size(); ++i) {
    store.start(false);
    const TokenList list = store.add(read.data()[i], options.mode, false, options.lower, options.fold);
    form.clear();
    for (std::size_t t = 0; t < list.count; ++t) {
      const Token& token = store.tokens(list)[t];
      if (t > 0) form += ' ';
      form.append(reinterpret_cast<const char*>(store.bytes() + token.begin), token.size);
    }
    forms.append(py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(form.data(), static_cast<Py_ssize_t>(form.size()), "surrogatepass")));
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  return forms;
}

// ---- bags of ids
// ------------------------------------------------------------------------------------------------------

std::vector<std::int64_t> read_offsets(const char* name, const py::object& value, Py_ssize_t size) {
  if (!py::isinstance<py::array_t<std::int64_t>>(value) || value.cast<py::array>().ndim() != 1 ||
      value.cast<py::array>().size() == 0) {
    raise_invalid(name, "a flat int64 array of at least one entry", value);
  }
  const auto offsets = value.cast<py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>>();
  std::vector<std::int64_t> result(offsets.data(), offsets.data() + offsets.size());
  if (result.front() != 0 || result.back() != size || !std::is_sorted(result.begin(), result.end())) {
    raise_invalid(name, "offsets that rise from 0 to " + std::to_string(size), value);
  }
  return result;
}

bool is_id_array(const py::object& value) {
  return (py::isinstance<py::array_t<std::int32_t>>(value) || py::isinstance<py::array_t<std::int64_t>>(value)) &&
         value.cast<py::array>().ndim() == 1;
}

template <class Id>
py::array_t<double> run_bag_f1(const py::object& prediction_ids, const std::vector<std::int64_t>& prediction_offsets,
                               const py::object& reference_ids, const std::vector<std::int64_t>& reference_offsets,
                               const std::vector<std::int64_t>& answer_rows, const std::vector<std::int64_t>& gold_rows,
                               int threads) {
  using Ids = py::array_t<Id, py::array::c_style | py::array::forcecast>;
  const auto given = prediction_ids.cast<Ids>(), named = reference_ids.cast<Ids>();
  std::int64_t size = 0;
  for (std::size_t b = 0; b + 1 < answer_rows.size(); ++b) {
    size += (answer_rows[b + 1] - answer_rows[b]) * (gold_rows[b + 1] - gold_rows[b]);
  }
  py::array_t<double> scores(size);
  double* const out = scores.mutable_data();
  {
    py::gil_scoped_release release;
    bag_f1<Id>({given.data(), prediction_offsets.data(), answer_rows.data()},
               {named.data(), reference_offsets.data(), gold_rows.data()}, answer_rows.size() - 1, threads, out);
  }
  return scores;
}

py::array_t<double> check_bag_f1(const py::object& prediction_ids, const py::object& prediction_offsets,
                                 const py::object& reference_ids, const py::object& reference_offsets,
                                 const py::object& answer_rows, const py::object& gold_rows, int threads) {
  if (!is_id_array(prediction_ids)) raise_invalid("prediction_ids", "a flat int32 or int64 array", prediction_ids);
  if (!is_id_array(reference_ids)) raise_invalid("reference_ids", "a flat int32 or int64 array", reference_ids);
  const bool narrow = py::isinstance<py::array_t<std::int32_t>>(prediction_ids);
  if (narrow != py::isinstance<py::array_t<std::int32_t>>(reference_ids)) {
    raise_invalid("reference_ids", std::string(narrow ? "int32" : "int64") + ", as prediction_ids",
                  reference_ids.attr("dtype"));
  }
  const auto given = read_offsets("prediction_offsets", prediction_offsets, prediction_ids.cast<py::array>().size());
  const auto named = read_offsets("reference_offsets", reference_offsets, reference_ids.cast<py::array>().size());
  const auto answers = read_offsets("answer_rows", answer_rows, static_cast<Py_ssize_t>(given.size()) - 1);
  const auto golds = read_offsets("gold_rows", gold_rows, static_cast<Py_ssize_t>(named.size()) - 1);
  if (answers.size() != golds.size()) {
    raise_invalid("gold_rows", std::to_string(answers.size()) + " entries, as answer_rows", py::int_(golds.size()));
  }
  const auto run = narrow ? &run_bag_f1<std::int32_t> : &run_bag_f1<std::int64_t>;
  return run(prediction_ids, given, reference_ids, named, answers, golds, threads);
}

}  // namespace

void bind_match(py::module_& module) {
  const auto kw = py::kw_only();
  const auto mode = py::arg("mode"), matcher = py::arg("matcher"), theta = py::arg("theta"),
             max_extra = py::arg("max_extra"), yes_no = py::arg("yes_no"), split_cjk = py::arg("split_cjk");
  const auto threads = py::arg("threads") = 1;
  module.def(
      "exact_match",
      [](const py::object& predictions, const py::object& references, const std::string& mode_name, int count) {
        return pairs(predictions, references, read_options("exact", mode_name, 1.0, 0, false, false), count);
      },
      py::arg("predictions"), py::arg("references"), kw, mode, threads);
  module.def(
      "token_f1",
      [](const py::object& predictions, const py::object& references, const std::string& mode_name, bool verdicts,
         bool split, int count) {
        return pairs(predictions, references, read_options("token_f1", mode_name, 1.0, 0, verdicts, split), count);
      },
      py::arg("predictions"), py::arg("references"), kw, mode, yes_no, split_cjk, threads);
  module.def(
      "fuzzy_match",
      [](const py::object& predictions, const py::object& references, const std::string& mode_name, double least,
         std::int64_t extra, bool split, int count) {
        return pairs(predictions, references, read_options("fuzzy", mode_name, least, extra, false, split), count);
      },
      py::arg("predictions"), py::arg("references"), kw, mode, theta, max_extra, split_cjk, threads);
  module.def(
      "score_matrix",
      [](const py::object& answers, const py::object& golds, const std::string& name, const std::string& mode_name,
         double least, std::int64_t extra, bool verdicts, bool split, int count) {
        return matrix(answers, golds, read_options(name, mode_name, least, extra, verdicts, split), count);
      },
      py::arg("answers"), py::arg("golds"), kw, matcher, mode, theta, max_extra, yes_no, split_cjk, threads);
  module.def(
      "match_sets",
      [](const py::object& answers, const py::object& golds, const std::string& name, const std::string& mode_name,
         double least, std::int64_t extra, bool verdicts, bool split, bool distinct, const py::object& kind,
         int count) {
        return sets(answers, golds, read_options(name, mode_name, least, extra, verdicts, split), distinct, kind,
                    count);
      },
      py::arg("answers"), py::arg("golds"), kw, matcher, mode, theta, max_extra, yes_no, split_cjk, py::arg("distinct"),
      py::arg("gold_kind") = py::none(), threads);
  module.def(
      "equivalence_classes",
      [](const py::object& answers, const std::string& name, const std::string& mode_name, double least,
         std::int64_t extra, bool verdicts, bool split, const std::string& linkage, int count) {
        const MatchOptions options = read_options(name, mode_name, least, extra, verdicts, split);
        return classes(answers, options, choice("linkage", linkage, kLinkages), count);
      },
      py::arg("answers"), kw, matcher, mode, theta, max_extra, yes_no, split_cjk, py::arg("linkage"), threads);
  module.def("assign", &assign, py::arg("equal"), kw, py::arg("distinct"));
  module.def("normal_forms", &normal_forms, py::arg("texts"), kw, mode);
  module.def("bag_f1", &check_bag_f1, kw, py::arg("prediction_ids"), py::arg("prediction_offsets"),
             py::arg("reference_ids"), py::arg("reference_offsets"), py::arg("answer_rows"), py::arg("gold_rows"),
             threads);
}

}  // namespace rewardkit::bindings
