--- Foretype for Neovim: inline completion through `foretype lsp`.
---
--- Neovim 0.12 and later show the suggestions themselves (`vim.lsp.inline_completion`); `native` adds what they leave open.
--- For 0.7 to 0.11 `fallback` draws them.
local M = {}

--- Language ids of the protocol, where they are not Neovim's file types.
local LANGUAGE_IDS = { cs = 'csharp', sh = 'shellscript', bash = 'shellscript' }

M.defaults = {
  --- Command that starts the language server.
  cmd = { 'foretype', 'lsp' },
  filetypes = {
    'python', 'javascript', 'typescript', 'typescriptreact', 'go', 'rust', 'java', 'c', 'cpp', 'cs', 'ruby', 'php', 'sh', 'lua',
  },
  root_markers = { '.git' },
  --- Initialization options of the server: enable, debounceMs, multiLine, excludedGlobs, gatewayUrl, nextEdit ...
  options = {},
  --- Keys of insert mode, and those of both modes while a next edit is shown; false for none.
  keys = {
    accept = '<Tab>', accept_word = '<M-Right>', accept_line = '<M-l>', suggest = '<M-Bslash>',
    next_edit = '<Tab>', next_edit_dismiss = '<Esc>',
  },
}

function M.language_id(_, filetype)
  return LANGUAGE_IDS[filetype] or filetype
end

--- @param settings table? what differs from `M.defaults`
function M.setup(settings)
  M.settings = vim.tbl_deep_extend('force', M.defaults, settings or {})
  if vim.lsp.inline_completion then
    M.backend = require('foretype.native')
  else
    M.backend = require('foretype.fallback')
  end
  M.backend.setup(M.settings)
  require('foretype.chat').setup()
  require('foretype.models').setup()
  require('foretype.rested').setup()
  require('foretype.next_edit').setup(M.settings, M.backend)
  vim.api.nvim_create_user_command('ForetypeExplain', function()
    require('foretype.explain').show()
  end, { desc = 'What the last suggestion was made from' })
  local keys = M.settings.keys or {}
  for name, part in pairs({ accept = 'all', accept_word = 'word', accept_line = 'line' }) do
    if keys[name] then
      require('foretype.keys').over('i', keys[name], function()
        return M.accept(part, keys[name]) and '' or nil
      end, 'accept ' .. part)
    end
  end
  if keys.suggest then
    vim.keymap.set('i', keys.suggest, M.suggest, { desc = 'Foretype: ask for a suggestion' })
  end
end

--- Ask for a suggestion at the cursor, however unsure the model is.
function M.suggest()
  M.backend.suggest()
end

local function press(keys)
  vim.api.nvim_feedkeys(vim.api.nvim_replace_termcodes(keys, true, true, true), 'in', false)
end

--- What the last accepted key asked for: a part, and the key to press instead.
local wanted = {}

--- Accept what is shown: 'all', its next 'word', or its 'line'. False if nothing is shown.
---
--- The text is changed ahead of the keys that are typed already, which may be many on a busy machine, and after a mapping with
--- `expr`, which must not change it. A completion menu is closed first and leaves the text as it is. What is accepted is one undo
--- step: neither what was typed before nor what is typed behind it goes with it.
--- @param part string?
--- @param otherwise string? key to press when it turns out that what is shown does not fit any more
function M.accept(part, otherwise)
  if not M.backend.fits() then
    return false
  end
  wanted = { part = part or 'all', otherwise = otherwise }
  local close = vim.fn.pumvisible() == 1 and '<C-x><C-z>' or ''
  press(close .. "<C-g>u<Cmd>lua require('foretype').insert()<CR><C-g>u")
  return true
end

--- The second half of `accept`.
function M.insert()
  if not M.backend.insert(wanted.part) and wanted.otherwise then
    press(wanted.otherwise)
  end
end

--- Where a text would go in the line as it is now, or nil if the user went another way. All columns are bytes.
--- @param length integer of the line when the suggestion was asked for
--- @param start_column integer of the suggestion's range, and its end: as they were then
--- @return string? typed what of the text stands left of the cursor already
--- @return integer? end_column of the range, now
function M.fit(line, column, length, start_column, end_column, text)
  end_column = end_column + #line - length -- what was typed since stands left of the end
  local typed = line:sub(start_column + 1, column)
  if column < start_column or end_column < column or end_column > #line then
    return nil
  end
  if #typed >= #text or text:sub(1, #typed) ~= typed then
    return nil
  end
  return typed, end_column
end

--- The part of a suggestion's text that is accepted.
--- @param rest string text after the cursor
--- @param part string 'all' | 'word' | 'line'
function M.part_of(rest, part)
  if part == 'all' then
    return rest
  end
  local first, more = rest:match('^([^\n]*)(.*)$')
  if first == '' then -- the rest begins with a new line: it is taken along
    return '\n' .. M.part_of(more:sub(2), part)
  end
  if part == 'line' then
    return first
  end
  -- A word of ASCII letters or whole characters beyond ASCII, or one run of anything else; blanks before it go along.
  return first:match('^%s*[%w_\128-\255]+') or first:match('^%s*[^%w%s_\128-\255]+') or first
end

return M
