--- The next edit: the one beyond the cursor that the last ones call for. Nothing moves without a key.
---
--- Tab jumps to it where it is far and applies it where it is near; Esc ends it. The keys are ours only while it is shown.
local M = {}

local draw = require('foretype.next_edit.draw')
local edits = require('foretype.next_edit.edit')
local keys = require('foretype.keys')
local lsp = require('foretype.lsp')
local switch = require('foretype.next_edit.switch')

local METHOD = 'textDocument/copilotInlineEdit'
local QUIET_MS = 50 -- keeps a burst of keys from becoming a burst of messages; the server waits for the end of the burst
local RECENT_S = 10 -- after a change: who only reads is left alone
local STRAY_ROWS = 2 -- that the cursor may go away from it

local settings, backend, timer
local live -- the newest question: `bufnr`, `tick`, `client`, `id`
--- What is shown: `item`, `client`, `home` (its buffer on the screen), `edit` (nil while it is in another file), `left`, `rows`
--- (how far the cursor was), `at` (where a jump left the cursor), `elsewhere` (somebody changed another place), `release` (keys).
local shown
local ended_here = false -- since the last change: what was taken off the screen does not come back by itself
local changed_ms = -math.huge
local ticks = {} -- of texts that were dealt with, by buffer

local function now_ms()
  return vim.loop.hrtime() / 1e6
end

local function cursor()
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  return row - 1, column
end

local function tick_of(bufnr)
  return vim.api.nvim_buf_get_changedtick(bufnr)
end

local function client_of(bufnr)
  local client = lsp.client(bufnr)
  local able = client and (client.server_capabilities or {}).experimental
  return able and able.foretype and able.foretype.nextEdit and client or nil
end

--- A completion menu of others, which is a window like any other.
local function menu()
  local cmp, blink = package.loaded['cmp'], package.loaded['blink.cmp']
  return vim.fn.pumvisible() == 1 or (cmp and cmp.visible and cmp.visible()) or (blink and blink.is_visible and blink.is_visible())
end

--- Whether something else has the user's attention, or the text is none to change.
local function inhibited()
  local mode = vim.api.nvim_get_mode().mode
  return (mode ~= 'n' and mode ~= 'i') or menu() or backend.fits() or (vim.snippet and vim.snippet.active())
    or vim.fn.reg_recording() ~= '' or vim.fn.reg_executing() ~= '' or not vim.bo.modifiable or vim.bo.readonly
end

local function tell(method, params)
  if not lsp.call(shown.client, 'is_stopped') then
    lsp.call(shown.client, 'notify', method, params)
  end
end

local function id_of(item)
  return item.data and item.data.id or item.command.arguments[1]
end

local function cancel()
  if live and live.id and not lsp.call(live.client, 'is_stopped') then
    lsp.call(live.client, 'cancel_request', live.id)
  end
  live = nil
end

--- Take it off the screen. The reason is one of the protocol's (docs/next-edit.md); nil after its acceptance.
local function off(reason)
  local was = shown
  if not was then
    return
  end
  if reason then
    tell('foretype/nextEditEnded', { id = id_of(was.item), reason = reason })
    ended_here = true
  end
  shown = nil
  was.release()
  draw.clear(was.home)
end

--- What is left of it in the text as it is now; nil if it does not fit any more. Changes nothing.
local function left()
  if not shown or shown.elsewhere or not shown.edit then
    return nil
  end
  local fits = edits.left(shown.edit)
  local goes_on = fits and fits.typed >= shown.left.typed and #fits.old <= #shown.left.old
  return goes_on and (fits.new ~= '' or fits.old ~= '' or shown.item.data.jumpOnly) and fits or nil
end

local function jumped_here()
  local row, column = cursor()
  return shown.at ~= nil and shown.at[1] == row and shown.at[2] == column
end

local function is_near(fits)
  return draw.near(shown.edit, fits) or (jumped_here() and draw.visible(shown.edit, fits))
end

local function key_name()
  return ((settings.keys or {}).next_edit or ':ForetypeNextEdit jump'):gsub('[<>]', '')
end

local function redraw()
  if shown.edit and not shown.item.data.jumpOnly and is_near(shown.left) then
    return draw.difference(shown.edit, shown.left)
  end
  local line = shown.item.range.start.line
  if shown.edit then
    local arrow = line < cursor() and ' ↑' or ' ↓'
    return draw.hint(shown.home, 'line ' .. line + 1, line == cursor() and '' or arrow, key_name())
  end
  local name = vim.fn.fnamemodify(vim.uri_to_fname(shown.item.textDocument.uri), ':t')
  draw.hint(shown.home, ('%s:%d'):format(name, line + 1), '', key_name())
end

--- Note the changes of a buffer that are not of the edit's own place.
local function watch(it)
  local first, rows = it.edit.row, it.edit.rows
  vim.api.nvim_buf_attach(it.edit.bufnr, false, {
    on_lines = function(_, _, _, from, to, new_to)
      if shown ~= it then
        return true
      end
      it.elsewhere = it.elsewhere or from < first or to > first + rows
      rows = rows + new_to - to
    end,
    on_reload = function()
      it.elsewhere = true
    end,
  })
end

local function hold_keys()
  local wanted, own = {}, settings.keys or {}
  for _, mode in ipairs({ 'n', 'i' }) do
    if own.next_edit then
      table.insert(wanted, { mode, own.next_edit, function()
        return M.applies(mode) and (mode == 'i' and '<C-g>u<Cmd>lua require("foretype.next_edit").take()<CR><C-g>u'
          or '<Cmd>lua require("foretype.next_edit").take()<CR>') or nil
      end, 'jump to the next edit, or apply it' })
    end
  end
  if own.next_edit_dismiss then
    table.insert(wanted, { 'n', own.next_edit_dismiss, function()
      vim.schedule(M.dismiss) -- and the key does what it does
    end, 'end the next edit' })
  end
  shown.release = keys.hold(shown.home, wanted)
end

--- Begin to show an edit in its own buffer. False if there is none in it.
local function place(bufnr)
  shown.edit = edits.of(bufnr, shown.client, shown.item)
  if not shown.edit then
    return false
  end
  shown.left = edits.left(shown.edit)
  watch(shown)
  return true
end

local function show(client, item, bufnr)
  item.data = type(item.data) == 'table' and item.data or {}
  shown = { item = item, client = client, home = bufnr, release = function() end }
  local here = vim.uri_from_bufnr(bufnr) == item.textDocument.uri
  if here and (not place(bufnr) or (shown.edit.old == shown.edit.new and not item.data.jumpOnly)) then
    shown = nil
    return
  end
  shown.rows = here and math.abs(shown.left.row - cursor()) or 0
  if item.data.jumpOnly and here and shown.rows == 0 then
    shown = nil -- the cursor is there
    return
  end
  hold_keys()
  redraw()
  tell('textDocument/didShowInlineEdit', { item = { command = item.command } })
end

local function ask()
  local bufnr = vim.api.nvim_get_current_buf()
  local client = client_of(bufnr)
  if shown or not client or not switch.on() or inhibited() then
    return
  end
  cancel()
  local question = { bufnr = bufnr, tick = tick_of(bufnr), client = client }
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.textDocument.version = vim.lsp.util.buf_versions[bufnr] or 0
  live = question
  local sent, id = lsp.call(client, 'request', METHOD, params, function(err, result)
    if live ~= question then
      return
    end
    live = nil
    local item = not err and type(result) == 'table' and type(result.edits) == 'table' and result.edits[1]
    local still = vim.api.nvim_get_current_buf() == bufnr and tick_of(bufnr) == question.tick
    local version = item and item.textDocument.version
    local here = item and vim.uri_from_bufnr(bufnr) == item.textDocument.uri
    still = still and (not here or version == params.textDocument.version)
    if item and still and not shown and not inhibited() and switch.on() then
      show(client, item, bufnr)
    end
  end, bufnr)
  question.id = sent and id or nil
  live = sent and live or nil
end

local function ask_soon()
  timer:stop()
  timer:start(QUIET_MS, 0, vim.schedule_wrap(ask))
end

local function changed(bufnr)
  if ticks[bufnr] == tick_of(bufnr) then
    return
  end
  ticks[bufnr], changed_ms, ended_here = tick_of(bufnr), now_ms(), false
  if shown then
    shown.left = left()
    if shown.left and not inhibited() then
      return redraw() -- typed along
    end
    off(shown.left and 'hidden' or 'typed')
  end
  ask_soon()
end

--- The cursor went somewhere, or a mode or a menu ended.
local function moved(bufnr)
  if ticks[bufnr] ~= tick_of(bufnr) and shown then
    return -- the change is dealt with in a moment
  end
  if not shown then
    if not ended_here and not live and now_ms() - changed_ms < RECENT_S * 1000 then
      ask_soon()
    end
  elseif inhibited() then
    off('hidden')
  elseif not jumped_here() then
    shown.at = nil
    local rows = math.abs((shown.edit and shown.left.row or cursor()) - cursor())
    if rows > math.max(shown.rows, STRAY_ROWS) then
      off('moved')
    else
      redraw()
    end
  end
end

local function left_buffer()
  timer:stop()
  cancel()
  changed_ms = -math.huge
  off('moved')
end

--- An inline suggestion is on the screen: one of both is enough.
function M.yield()
  off('hidden')
end

--- Whether the key is ours: something is shown that still fits, and this is no place to indent.
function M.applies(mode)
  if not shown or inhibited() or (shown.edit and not left()) then
    return false
  end
  local _, column = cursor()
  return mode ~= 'i' or jumped_here() or vim.api.nvim_get_current_line():sub(1, column):find('%S') ~= nil
end

--- Jump to what is far, apply what is near.
function M.take()
  if shown and shown.edit and left() and is_near(left()) and not shown.item.data.jumpOnly then
    M.accept()
  else
    M.jump()
  end
end

--- Put the cursor where the next edit is; asks for one where none is shown.
function M.jump()
  if not shown then
    ended_here = false
    return ask()
  end
  local item, was = shown.item, shown
  vim.cmd("normal! m'")
  if not shown.edit then
    shown = nil
    was.release()
    draw.clear(was.home)
    local bufnr = vim.uri_to_bufnr(item.textDocument.uri)
    vim.cmd('hide buffer ' .. bufnr)
    vim.bo[bufnr].buflisted = true
    shown = { item = item, client = was.client, home = bufnr, release = function() end }
    local version = item.textDocument.version
    local stale = type(version) == 'number' and (vim.lsp.util.buf_versions[bufnr] or version) ~= version
    if stale or not place(bufnr) then
      return off('replaced')
    end
    hold_keys()
  else
    shown.left = left()
    if not shown.left then
      return off('typed')
    end
  end
  vim.api.nvim_win_set_cursor(0, { shown.left.row + 1, shown.left.col })
  vim.cmd('normal! zv')
  if not draw.visible(shown.edit, shown.left) then
    vim.cmd('normal! zz')
  end
  shown.at, shown.rows = { cursor() }, 0
  ticks[shown.home] = tick_of(shown.home)
  tell('foretype/nextEditJumped', { id = id_of(item) })
  if item.data.jumpOnly then
    return off('hidden')
  end
  redraw()
end

--- Apply it, wherever it is on the screen. False if nothing is shown that fits.
function M.accept()
  local fits = left()
  if not fits or shown.item.data.jumpOnly then
    return false
  end
  local it = shown
  off()
  if fits.row ~= cursor() then
    vim.cmd("normal! m'")
  end
  local row, column = edits.apply(it.edit, fits)
  if vim.api.nvim_get_mode().mode == 'n' and column > 0 then
    column = column - 1
  end
  vim.api.nvim_win_set_cursor(0, { row + 1, column })
  ticks[it.home], changed_ms, ended_here = tick_of(it.home), now_ms(), false
  if not lsp.call(it.client, 'is_stopped') then
    local command = { command = it.item.command.command, arguments = it.item.command.arguments }
    lsp.call(it.client, 'request', 'workspace/executeCommand', command, function() end, it.home)
  end
  ask() -- the next of a chain
  return true
end

--- Show nothing, and wait for no answer.
function M.drop()
  cancel()
  off('hidden')
end

--- The user does not want it.
function M.dismiss()
  off('rejected')
end

function M.setup(given, its_backend)
  settings, backend = given, its_backend
  timer = timer or vim.loop.new_timer()
  draw.setup()
  local group = vim.api.nvim_create_augroup('foretype_next_edit', {})
  local function on(events, run, pattern)
    vim.api.nvim_create_autocmd(events, {
      group = group,
      pattern = pattern,
      callback = function(event)
        run(event.buf)
      end,
    })
  end
  on({ 'TextChanged', 'TextChangedI', 'TextChangedP' }, changed)
  on({ 'CursorMoved', 'CursorMovedI', 'CompleteDone' }, moved)
  require('foretype.leaving').on(group, 'next_edit', function(bufnr)
    off('hidden')
    moved(bufnr)
  end)
  on('ModeChanged', function()
    local mode = vim.api.nvim_get_mode().mode
    if mode:find('^[vVsSRt\22\19]') then
      off('hidden')
    end
  end, '*')
  on({ 'BufLeave', 'WinLeave' }, left_buffer)
  on('BufWipeout', function(bufnr)
    ticks[bufnr] = nil
  end)
  switch.setup(settings, M)
end

return M
