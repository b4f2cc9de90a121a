--- A next edit in a buffer: what it replaces and what it says instead, and what is left of it while the user types just that.
local M = {}

local lsp = require('foretype.lsp')

local function line_of(bufnr, row)
  return vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ''
end

--- How many bytes two texts have in common at their start.
local function common(a, b)
  local most = math.min(#a, #b)
  for i = 1, most do
    if a:byte(i) ~= b:byte(i) then
      return i - 1
    end
  end
  return most
end

local function in_word(text, at)
  return text:sub(at, at):match('[%w_\128-\255]') ~= nil
end

local function inside_character(text, at)
  local byte = text:byte(at)
  return byte ~= nil and byte >= 128 and byte < 192
end

--- Bytes at both ends that stay as they are. Where something is replaced, a word is replaced whole: it is easier to read.
local function kept(old, new)
  local head = common(old, new)
  while head > 0 and (inside_character(old, head + 1) or inside_character(new, head + 1)) do
    head = head - 1
  end
  local tail = math.min(common(old:reverse(), new:reverse()), #old - head, #new - head)
  while tail > 0 and inside_character(old, #old - tail + 1) do
    tail = tail - 1
  end
  if head + tail < #old and head + tail < #new then
    while head > 0 and in_word(old, head) and (in_word(old, head + 1) or in_word(new, head + 1)) do
      head = head - 1
    end
    while tail > 0 and in_word(old, #old - tail + 1) and (in_word(old, #old - tail) or in_word(new, #new - tail)) do
      tail = tail - 1
    end
  end
  return head, tail
end

--- Where a text ends that begins at a place. Columns are bytes.
function M.behind(row, col, text)
  local _, more = text:gsub('\n', '')
  return row + more, (more == 0 and col or 0) + #text:match('[^\n]*$')
end

--- An answer's edit in the buffer of its document; nil where it does not fit into it.
function M.of(bufnr, client, item)
  local count = vim.api.nvim_buf_line_count(bufnr)
  local from, to, new = item.range.start, item.range['end'], item.text:gsub('\r\n', '\n')
  if from.line > count or to.line > count or from.line > to.line then
    return nil
  end
  local function place(position)
    local row = math.min(position.line, count - 1)
    local line = line_of(bufnr, row)
    return row, position.line < count and lsp.byte(client, line, position.character) or #line
  end
  local row, col = place(from)
  local end_row, end_col = place(to)
  if to.line == count then -- behind the last line; its own end goes without saying in a buffer
    if from.line == count then
      new = '\n' .. new
    elseif new == '' and col == 0 and row > 0 then
      row, col = row - 1, #line_of(bufnr, row - 1)
    end
    new = new:gsub('\n$', '')
  end
  if row == end_row and col > end_col then
    return nil
  end
  local old = table.concat(vim.api.nvim_buf_get_text(bufnr, row, col, end_row, end_col, {}), '\n')
  local head, tail = kept(old, new)
  row, col = M.behind(row, col, old:sub(1, head))
  old, new = old:sub(head + 1, #old - tail), new:sub(head + 1, #new - tail)
  end_row, end_col = M.behind(row, col, old)
  return {
    bufnr = bufnr, row = row, col = col, old = old, new = new, count = count, rows = end_row - row + 1,
    before = line_of(bufnr, row):sub(1, col), after = line_of(bufnr, end_row):sub(end_col + 1),
  }
end

--- What is left of an edit: nothing was changed but its own place, and that only as it says.
---
--- @return table? left `row`, `col`, `end_row`, `end_col`, `old` and `new` as they are now; `typed`: bytes of it that stand there
function M.left(edit)
  local last = edit.row + edit.rows - 1 + vim.api.nvim_buf_line_count(edit.bufnr) - edit.count
  local text = table.concat(vim.api.nvim_buf_get_lines(edit.bufnr, edit.row, math.max(edit.row, last + 1), false), '\n')
  local stays = #edit.before + #edit.after
  if #text < stays or text:sub(1, #edit.before) ~= edit.before or text:sub(#text - #edit.after + 1) ~= edit.after then
    return nil
  end
  local there = text:sub(#edit.before + 1, #text - #edit.after)
  for typed = there == edit.old and 0 or common(there, edit.new), 0, -1 do
    local old = there:sub(typed + 1)
    if #old <= #edit.old and edit.old:sub(#edit.old - #old + 1) == old then
      local row, col = M.behind(edit.row, edit.col, edit.new:sub(1, typed))
      local end_row, end_col = M.behind(row, col, old)
      local new = edit.new:sub(typed + 1)
      return { row = row, col = col, end_row = end_row, end_col = end_col, old = old, new = new, typed = typed }
    end
  end
  return nil
end

--- Put what is left of an edit into the text. Returns where the cursor goes.
function M.apply(edit, left)
  local lines = vim.split(left.new, '\n', { plain = true })
  vim.api.nvim_buf_set_text(edit.bufnr, left.row, left.col, left.end_row, left.end_col, lines)
  return M.behind(left.row, left.col, left.new)
end

return M
