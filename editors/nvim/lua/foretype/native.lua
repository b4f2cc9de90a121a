--- Neovim's own inline completion (0.12), made safe to accept while typing.
---
--- Neovim 0.12 keeps showing an item while the user types on, and accepting it then replaces the range that it was made for:
--- the characters typed since stay behind (neovim #36529). It never cancels a request, and keeps the old item when the answer
--- is `null`. So every request goes through here: the one before is cancelled, the length of the line is noted, and what is
--- accepted is fitted to the line as it is now, or refused.
local M = {}

local METHOD = 'textDocument/inlineCompletion'

--- By buffer: the newest request (id, client), and the request that the shown item answers.
local live, shown = {}, {}

local function line_of(bufnr, row)
  return vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ''
end

local function cursor()
  local position = vim.api.nvim_win_get_cursor(0)
  return position[1] - 1, position[2]
end

local function watch(client)
  local request = client.request
  client.request = function(self, method, params, handler, bufnr)
    if method ~= METHOD then
      return request(self, method, params, handler, bufnr)
    end
    bufnr = vim._resolve_bufnr(bufnr)
    local row = params.position.line
    local asked = { row = row, length = #line_of(bufnr, row) }
    local before = live[bufnr]
    local waiting = before and before.client == self and self.requests[before.id]
    if waiting and waiting.type == 'pending' then -- leaving insert mode cancels by itself
      self:cancel_request(before.id)
    end
    local sent, id = request(self, method, params, function(err, result, ctx)
      if live[bufnr] ~= asked then
        return -- a newer request is on its way: what is shown stays until its answer
      end
      live[bufnr] = nil
      local items = result and (result.items or result) or {}
      asked.item = not err and items[1] or nil
      shown[bufnr] = asked
      handler(nil, { items = err and {} or items }, ctx)
    end, bufnr)
    asked.client, asked.id = self, id
    live[bufnr] = sent and asked or nil
    return sent, id
  end
end

--- Where text would go in the line as it is now: what of it is typed already, and the columns of the range.
local function fit(bufnr, range, text)
  local asked, row, column = shown[bufnr], cursor()
  local start_row, start_column, end_row, end_column = range:to_extmark()
  if not asked or row ~= start_row or row ~= end_row or row ~= asked.row then
    return nil
  end
  local typed, end_now =
    require('foretype').fit(line_of(bufnr, row), column, asked.length, start_column, end_column, text)
  return typed, start_column, end_now
end

--- The item with the part of it that is accepted, fitted to the line, or nil if it does not fit any more.
local function fitted(item, part)
  local bufnr = vim.api.nvim_get_current_buf()
  if not item.range or type(item.insert_text) ~= 'string' then
    return nil
  end
  local typed, start_column, end_column = fit(bufnr, item.range, item.insert_text)
  if not typed then
    return nil
  end
  local row, column = cursor()
  local rest = item.insert_text:sub(#typed + 1)
  local taken = require('foretype').part_of(rest, part)
  local whole = taken == rest
  item.range = vim.range.extmark(bufnr, row, start_column, row, whole and end_column or column)
  item.insert_text = typed .. taken
  if not whole then
    local client = vim.lsp.get_client_by_id(item.client_id)
    if client and item.command then
      client:notify('textDocument/didPartiallyAcceptCompletion', {
        item = { insertText = typed .. rest, command = item.command },
        acceptedLength = vim.str_utfindex(item.insert_text, 'utf-16'),
      })
    end
    item.command = nil
  end
  return item
end

--- @param otherwise string? key that is pressed instead when what is shown does not fit any more
function M.accept(part, otherwise)
  return vim.lsp.inline_completion.get({
    on_accept = function(item)
      local usable = fitted(item, part)
      if not usable and otherwise then
        vim.api.nvim_feedkeys(vim.keycode(otherwise), 'n', false)
      end
      return usable
    end,
  })
end

--- Neovim goes on showing an item that the user has typed away from; take it off the screen.
local function hide_what_does_not_fit(bufnr)
  local asked = shown[bufnr]
  if not (asked and asked.item and asked.item.range and vim.api.nvim_get_current_buf() == bufnr) then
    return
  end
  local range = vim.range.lsp(bufnr, asked.item.range, asked.client.offset_encoding)
  if not fit(bufnr, range, asked.item.insertText) then
    vim.api.nvim_buf_clear_namespace(bufnr, vim.api.nvim_create_namespace('nvim.lsp.inline_completion'), 0, -1)
  end
end

function M.setup(settings)
  vim.lsp.config('foretype', {
    cmd = settings.cmd,
    filetypes = settings.filetypes,
    root_markers = settings.root_markers,
    -- Neovim asks 200 ms after the last key, and tells of that key as late: a wait of the server's own would come on top.
    init_options = vim.tbl_extend('keep', settings.options, { debounceMs = 0 }),
    get_language_id = require('foretype').language_id,
    capabilities = require('foretype.chat').capabilities(),
    on_init = watch,
  })
  local group = vim.api.nvim_create_augroup('foretype', {})
  vim.api.nvim_create_autocmd({ 'CursorMovedI', 'TextChangedP' }, {
    group = group,
    callback = function(event)
      vim.schedule(function()
        if vim.api.nvim_buf_is_valid(event.buf) then
          hide_what_does_not_fit(event.buf)
        end
      end)
    end,
  })
  vim.api.nvim_create_autocmd('BufWipeout', {
    group = group,
    callback = function(event)
      live[event.buf], shown[event.buf] = nil, nil
    end,
  })
  vim.lsp.enable('foretype')
  vim.lsp.inline_completion.enable()
end

return M
