--- A suggestion between its question and its acceptance: what was asked, what came, and whether it still fits the text.
local M = {}

local lsp = require('foretype.lsp')

local function line_of(bufnr, row)
  return vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ''
end

--- A question about a line as it is now.
function M.asked(bufnr, row, client)
  return { bufnr = bufnr, row = row, line = line_of(bufnr, row), client = client }
end

--- Keep the answer's item, with the bytes of its range in the line that was asked about; nil where there is none to show.
function M.take(asked, item)
  asked.item = item and item.range and type(item.insertText) == 'string' and item or nil
  if asked.item then
    asked.start_column = lsp.byte(asked.client, asked.line, item.range.start.character)
    asked.end_column = lsp.byte(asked.client, asked.line, item.range['end'].character)
  end
  return asked.item
end

--- What of the item stands left of the cursor already, its rest, and the end of what it replaces; nil if it does not fit.
--- @return string? typed
--- @return string? rest
--- @return integer? end_column in bytes
function M.fitted(asked)
  if not (asked and asked.item) or vim.api.nvim_get_current_buf() ~= asked.bufnr then
    return nil
  end
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  if row - 1 ~= asked.row then
    return nil
  end
  local text, line = asked.item.insertText, line_of(asked.bufnr, asked.row)
  local typed, end_column =
    require('foretype').fit(line, column, #asked.line, asked.start_column, asked.end_column, text)
  if not typed then
    return nil
  end
  return typed, text:sub(#typed + 1), end_column
end

--- Put a part of an item that fits into the text, and tell the server.
--- @param part string 'all' | 'word' | 'line'
function M.insert(asked, part)
  local typed, rest, end_column = M.fitted(asked)
  local taken = require('foretype').part_of(rest, part)
  local whole = taken == rest
  local row, column = asked.row, vim.api.nvim_win_get_cursor(0)[2]
  local lines = vim.split(taken, '\n', { plain = true })
  vim.api.nvim_buf_set_text(asked.bufnr, row, column, row, whole and end_column or column, lines)
  vim.api.nvim_win_set_cursor(0, { row + #lines, (#lines == 1 and column or 0) + #lines[#lines] })
  local command = asked.item.command
  if not command or lsp.call(asked.client, 'is_stopped') then
    return
  end
  if whole then
    local told = { command = command.command, arguments = command.arguments }
    lsp.call(asked.client, 'request', 'workspace/executeCommand', told, function() end, asked.bufnr)
  else
    local accepted = { item = asked.item, acceptedLength = lsp.utf16_length(typed .. taken) }
    lsp.call(asked.client, 'notify', 'textDocument/didPartiallyAcceptCompletion', accepted)
  end
end

return M
