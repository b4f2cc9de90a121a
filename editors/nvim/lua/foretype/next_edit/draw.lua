--- Draws a next edit: a difference in place where it is near, a hint at the end of the cursor's line where it is far.
local M = {}

local INLINE = vim.fn.has('nvim-0.10') == 1 -- virtual text inside a line
local NEAR_ROWS = 2
local OLD, NEW, SAME, HINT = 'ForetypeNextOld', 'ForetypeNextNew', 'ForetypeNextSame', 'ForetypeNextHint'
local marks = vim.api.nvim_create_namespace('foretype_next_edit')

function M.setup()
  for group, like in pairs({ [OLD] = 'DiffDelete', [NEW] = 'DiffAdd', [SAME] = 'Normal', [HINT] = 'Comment' }) do
    vim.cmd(('highlight default link %s %s'):format(group, like))
  end
end

function M.clear(bufnr)
  if bufnr and vim.api.nvim_buf_is_valid(bufnr) then
    vim.api.nvim_buf_clear_namespace(bufnr, marks, 0, -1)
  end
end

--- The lines that are drawn below the text, and the row that they belong to; empty where all of it is drawn inside a line.
---
--- Below stand the lines as they will be, in full, or the new ones alone where whole lines are added.
local function below(edit, left)
  local old, new = left.old, left.new
  if not (old .. new):find('\n') and (INLINE or new == '') then
    return {}
  end
  local whole_start, whole_end = left.col == 0, edit.after == ''
  if new == '' and ((whole_start and old:sub(-1) == '\n') or (whole_end and old:sub(1, 1) == '\n')) then
    return {} -- lines that go
  end
  local row, told = left.end_row, vim.split(new, '\n', { plain = true })
  local same = (edit.before .. edit.new:sub(1, left.typed)):match('[^\n]*$')
  local first, last = { { same, SAME }, { told[1], NEW } }, { edit.after, SAME }
  if old == '' and whole_end and new:sub(1, 1) == '\n' then
    table.remove(told, 1)
    first = { { told[1], NEW } }
  elseif old == '' and whole_start and new:sub(-1) == '\n' and left.row > 0 then
    table.remove(told)
    row, last, first = left.row - 1, { '', SAME }, { { told[1], NEW } }
  end
  local lines = { first }
  for i = 2, #told do
    table.insert(lines, { { told[i], NEW } })
  end
  table.insert(lines[#lines], last)
  return lines, row
end

--- Rows of a window, from 1, that a part of the text takes on the screen; nil if not all of it is there.
local function on_screen(win, first, last, more)
  local line = vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(win), last, last + 1, false)[1] or ''
  local top = vim.fn.screenpos(win, first + 1, 1).row
  local bottom = vim.fn.screenpos(win, last + 1, math.max(#line, 1)).row
  local window = vim.fn.getwininfo(win)[1]
  if top == 0 or bottom == 0 or bottom + more > window.winrow + (window.winbar or 0) + window.height - 1 then
    return nil
  end
  return top, bottom + more
end

--- Whether a floating window stands over these rows of the screen.
local function covered(win, top, bottom)
  for _, other in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    if other ~= win and vim.api.nvim_win_get_config(other).relative ~= '' then
      local its_top = vim.api.nvim_win_get_position(other)[1] + 1
      if its_top <= bottom and its_top + vim.api.nvim_win_get_height(other) - 1 >= top then
        return true
      end
    end
  end
  return false
end

--- Whether all of it is on the screen, and nothing over it.
function M.visible(edit, left)
  local win, lines = vim.api.nvim_get_current_win(), below(edit, left)
  if vim.fn.foldclosed(left.row + 1) ~= -1 then
    return false
  end
  local top, bottom = on_screen(win, left.row, left.end_row, #lines)
  return top ~= nil and not covered(win, top, bottom)
end

--- Whether it is drawn where it is: on the cursor's line or just below it, all of it on the screen.
function M.near(edit, left)
  local rows = left.row - (vim.api.nvim_win_get_cursor(0)[1] - 1)
  return rows >= 0 and rows <= NEAR_ROWS and M.visible(edit, left)
end

--- Draw the difference.
function M.difference(edit, left)
  M.clear(edit.bufnr)
  if left.old ~= '' then
    vim.api.nvim_buf_set_extmark(edit.bufnr, marks, left.row, left.col, {
      end_row = left.end_row, end_col = left.end_col, hl_group = OLD,
    })
  end
  local lines, row = below(edit, left)
  if #lines > 0 then
    vim.api.nvim_buf_set_extmark(edit.bufnr, marks, row, 0, { virt_lines = lines })
  elseif left.new ~= '' then
    vim.api.nvim_buf_set_extmark(edit.bufnr, marks, left.end_row, left.end_col, {
      virt_text = { { left.new, NEW } }, virt_text_pos = 'inline',
    })
  end
end

--- Draw the hint: what it says about a place that is not here.
--- @param place string
--- @param arrow string
--- @param key string that jumps there
function M.hint(bufnr, place, arrow, key)
  M.clear(bufnr)
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local text = ('→ next edit: %s%s (%s)'):format(place, arrow, key)
  local line = vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1]
  local window = vim.fn.getwininfo(vim.api.nvim_get_current_win())[1]
  local room = window.width - (window.textoff or 8) - vim.fn.strdisplaywidth(line)
  if room > vim.fn.strdisplaywidth(text) + 2 then
    vim.api.nvim_buf_set_extmark(bufnr, marks, row, 0, { virt_text = { { '  ' .. text, HINT } }, virt_text_pos = 'eol' })
  else -- it would be cut off
    vim.api.nvim_buf_set_extmark(bufnr, marks, row, 0, { virt_lines = { { { text, HINT } } } })
  end
end

return M
