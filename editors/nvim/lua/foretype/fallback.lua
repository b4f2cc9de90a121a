--- Inline completion for Neovim 0.7 to 0.11, which have none of their own: extmarks, and a guard against stale items.
local M = {}

local METHOD = 'textDocument/inlineCompletion'
local QUIET_MS = 30 -- keeps a burst of keys from becoming a burst of messages
local DEBOUNCE_MS = 25 -- of the server, from the key on: it asks the model before it is asked itself
local INVOKED, AUTOMATIC = 1, 2 -- the protocol's kinds of question: the user asks, or typing does
local ghosts = vim.api.nvim_create_namespace('foretype')

local offer = require('foretype.offer')

local settings, client_id
--- By buffer: `timer`, `live` (the newest question), `shown` (the one whose item is shown).
local buffers = {}

local function client()
  return client_id and vim.lsp.get_client_by_id(client_id)
end

local function call(name, ...)
  local it = client()
  if not it then
    return false
  end
  return require('foretype.lsp').call(it, name, ...)
end

local function hide(bufnr)
  vim.api.nvim_buf_clear_namespace(bufnr, ghosts, 0, -1)
end

local function draw(bufnr)
  hide(bufnr)
  local asked = buffers[bufnr].shown
  local typed, rest, end_column = offer.fitted(asked)
  if not typed then
    return
  end
  local row, column = asked.row, vim.api.nvim_win_get_cursor(0)[2]
  local lines = vim.split(rest, '\n', { plain = true })
  -- Over the rest of the line, which is drawn again behind it: virtual text inside a line came with 0.10.
  local kept = vim.api.nvim_get_current_line():sub(end_column + 1)
  local first = { { lines[1], 'ForetypeGhost' } }
  if kept ~= '' then
    table.insert(first, { kept, 'Normal' })
  end
  local below = {}
  for i = 2, #lines do
    table.insert(below, { { lines[i], 'ForetypeGhost' } })
  end
  vim.api.nvim_buf_set_extmark(bufnr, ghosts, row, column, {
    virt_text = first,
    virt_text_pos = 'overlay',
    virt_lines = #below > 0 and below or nil,
  })
  require('foretype.next_edit').yield()
end

local function cancel(bufnr)
  local state = buffers[bufnr]
  if state.live and state.live.id then
    call('cancel_request', state.live.id)
  end
  state.live = nil
end

local function forget(bufnr)
  local state = buffers[bufnr]
  if state then
    state.timer:stop()
    cancel(bufnr)
    state.shown = nil
    hide(bufnr)
  end
end

local function drop(bufnr)
  if buffers[bufnr] then
    buffers[bufnr].timer:close()
    buffers[bufnr] = nil
  end
end

local function ask(bufnr, kind)
  local it = client()
  if not it or vim.api.nvim_get_current_buf() ~= bufnr or vim.fn.mode():sub(1, 1) ~= 'i' or vim.fn.pumvisible() == 1 then
    return
  end
  local state = buffers[bufnr]
  cancel(bufnr)
  local asked = offer.asked(bufnr, vim.api.nvim_win_get_cursor(0)[1] - 1, it)
  local params = vim.lsp.util.make_position_params(0, it.offset_encoding)
  params.context = { triggerKind = kind }
  state.live = asked
  local sent, id = call('request', METHOD, params, function(err, result)
    if state.live ~= asked then
      return -- a newer request is on its way: what is shown stays until its answer
    end
    state.live = nil
    local item = not err and result and (result.items or result)[1]
    state.shown = offer.take(asked, item) and asked
    draw(bufnr)
  end, bufnr)
  if sent then
    asked.id = id
  else
    state.live = nil
  end
end

--- What is shown is a part of what is there now: ask again, unless a question is on its way.
local function grew(_, params)
  local bufnr = vim.api.nvim_get_current_buf() -- by name it is not found where it has none: a new one would be made
  local state = vim.uri_from_bufnr(bufnr) == params.textDocument.uri and buffers[bufnr]
  if state and state.shown and not state.live and not state.timer:is_active() then
    ask(bufnr, AUTOMATIC)
  end
end

local function moved(bufnr)
  local state = buffers[bufnr]
  if not state then
    return
  end
  if vim.fn.pumvisible() == 1 then
    forget(bufnr) -- the menu has the word
    return
  end
  draw(bufnr) -- typed through: it shrinks at once; typed away from: it goes
  state.timer:stop()
  state.timer:start(QUIET_MS, 0, vim.schedule_wrap(function()
    if vim.api.nvim_buf_is_valid(bufnr) then
      ask(bufnr, AUTOMATIC)
    end
  end))
end

--- The user asks for a suggestion here.
function M.suggest()
  local bufnr = vim.api.nvim_get_current_buf()
  if buffers[bufnr] then
    buffers[bufnr].timer:stop() -- what typing would ask in a moment would take its place
    ask(bufnr, INVOKED)
  end
end

function M.fits()
  local state = buffers[vim.api.nvim_get_current_buf()]
  return state ~= nil and offer.fitted(state.shown) ~= nil
end

--- Put a part of what is shown into the text; false if it does not fit any more.
function M.insert(part)
  if not M.fits() then
    return false
  end
  local bufnr = vim.api.nvim_get_current_buf()
  local asked = buffers[bufnr].shown
  forget(bufnr)
  offer.insert(asked, part)
  return true
end

local function root_of(file)
  local folder = vim.fn.fnamemodify(file, ':p:h')
  for _, marker in ipairs(settings.root_markers) do
    local found = vim.fn.finddir(marker, folder .. ';')
    found = found ~= '' and found or vim.fn.findfile(marker, folder .. ';')
    if found ~= '' then
      return vim.fn.fnamemodify(found, ':p:h'):gsub('/' .. vim.pesc(marker) .. '$', '')
    end
  end
  return folder
end

local function attach(bufnr)
  if vim.bo[bufnr].buftype ~= '' or (buffers[bufnr] and client_id and vim.lsp.buf_is_attached(bufnr, client_id)) then
    return -- `:edit` reads a file anew, and detaches it
  end
  if not client() then
    local command = require('foretype.lsp').command(settings.cmd)
    if not command then
      return -- Neovim would stop with a message at each file; `:checkhealth foretype` says it once
    end
    local root = root_of(vim.api.nvim_buf_get_name(bufnr))
    client_id = vim.lsp.start_client({
      name = 'foretype',
      cmd = command,
      cmd_cwd = vim.loop.os_homedir(), -- `python -m` imports from there: never from a repository
      root_dir = root,
      workspace_folders = { { uri = vim.uri_from_fname(root), name = root } },
      init_options = vim.tbl_extend('keep', settings.options, {
        debounceMs = DEBOUNCE_MS,
        askEarly = true,
        suggestionGrew = true,
      }),
      handlers = { ['foretype/suggestionGrew'] = grew },
      get_language_id = require('foretype').language_id,
      capabilities = require('foretype.chat').capabilities(),
      flags = { debounce_text_changes = 0 },
      on_exit = vim.schedule_wrap(function()
        for bufnr in pairs(buffers) do
          if vim.api.nvim_buf_is_valid(bufnr) then
            hide(bufnr)
          end
          drop(bufnr)
        end
        client_id = nil
      end),
    })
  end
  if client_id and vim.lsp.buf_attach_client(bufnr, client_id) then
    buffers[bufnr] = buffers[bufnr] or { timer = vim.loop.new_timer() }
  end
end

function M.setup(given)
  settings = given
  vim.cmd('highlight default link ForetypeGhost Comment')
  local group = vim.api.nvim_create_augroup('foretype', {})
  local function on(events, run, pattern)
    vim.api.nvim_create_autocmd(events, {
      group = group,
      pattern = pattern,
      callback = function(event)
        run(event.buf)
      end,
    })
  end
  on('FileType', attach, settings.filetypes)
  require('foretype.renaming').on(group, hide)
  on({ 'InsertEnter', 'CursorMovedI', 'TextChangedI', 'TextChangedP' }, moved)
  require('foretype.leaving').on(group, 'fallback', forget)
  on('BufWipeout', drop)
end

return M
